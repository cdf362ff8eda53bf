//! Gives memory back to the guest after load: what the daemon once needed would otherwise be stored with every snapshot
//! and copied into every clone.

use std::time::Duration;

use tokio::sync::Notify;

/// Load comes in waves; the pause also bounds how often the heap is walked.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns free memory a moment after something large may have been freed.
#[derive(Debug, Default)]
pub(crate) struct Trimmer {
    freed: Notify,
}

impl Trimmer {
    /// Something that held buffers has gone.
    pub(crate) fn notice(&self) {
        self.freed.notify_one();
    }

    /// Runs for ever. Asleep while nothing is freed.
    pub(crate) async fn run(&self) {
        loop {
            self.freed.notified().await;
            tokio::time::sleep(PAUSE).await;
            give_back();
        }
    }
}

/// Blocks of a stream come from the heap and stay in it while it flows: giving pages back and faulting them in anew for
/// each block cost several times what the bytes themselves do. The trimmer sees to the rest.
const KEPT_FREE_BYTES: libc::c_int = 4 << 20;

/// Sets the allocator up. All threads share one heap: each further one would keep free memory of its own.
pub(crate) fn prepare_heap() {
    // SAFETY: plain calls that set numbers of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_FREE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_FREE_BYTES);
    }
}

fn give_back() {
    // SAFETY: a plain call; the allocator keeps its own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
