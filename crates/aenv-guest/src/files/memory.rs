//! Gives memory back to the kernel after a burst of work. The daemon lives in every clone, and the allocator would keep
//! what the largest burst needed for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// How long after the end of something large; whatever ends meanwhile is covered too.
const DELAY: Duration = Duration::from_secs(2);

static IS_PENDING: AtomicBool = AtomicBool::new(false);

/// Releases unused memory in a moment. Cheap to call often, from any thread.
pub(crate) fn release_soon(runtime: &Handle) {
    if IS_PENDING.swap(true, Ordering::Relaxed) {
        return;
    }
    runtime.spawn(async {
        tokio::time::sleep(DELAY).await;
        IS_PENDING.store(false, Ordering::Relaxed);
        // When all workers are busy, the next burst will come to an end too.
        let _ = super::blocking::run(release).await;
    });
}

#[cfg(target_env = "gnu")]
fn release() {
    // SAFETY: the call has no preconditions; it only returns free pages.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators return memory by themselves.
#[cfg(not(target_env = "gnu"))]
fn release() {}
