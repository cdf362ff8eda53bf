//! Where blocking file system calls run: the runtime's blocking pool, behind a bound of our own, so that a file system
//! that hangs costs some workers and never the async thread.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Short calls that may be in the kernel at once.
const CALLS_MAX: usize = 32;
/// How long a caller waits for its turn before it is told that the guest is busy.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

static CALLS: Semaphore = Semaphore::const_new(CALLS_MAX);

/// Why blocking work gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlockingError {
    /// No worker became free in time.
    #[error("too many file operations at once; try again later")]
    Busy,
    /// The work panicked: a bug, confined to its request.
    #[error("file operation failed unexpectedly")]
    Panicked,
}

/// Runs one short blocking call.
pub(crate) async fn run<T, Work>(work: Work) -> Result<T, BlockingError>
where
    Work: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let turn = tokio::time::timeout(TURN_TIMEOUT, CALLS.acquire()).await.map_err(|_| BlockingError::Busy)?;
    let turn = turn.expect("the semaphore is never closed");
    let work = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, not with a caller that has lost patience.
        let _turn = turn;
        work()
    });
    work.await.map_err(|_| BlockingError::Panicked)
}

/// A bound on long transfers, each of which is many short calls or one long one.
pub(crate) async fn transfer_slot(slots: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, BlockingError> {
    let slot = tokio::time::timeout(TURN_TIMEOUT, Arc::clone(slots).acquire_owned()).await;
    Ok(slot.map_err(|_| BlockingError::Busy)?.expect("the semaphore is never closed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_stays_with_its_caller() {
        let outcome = run(|| panic!("a bug")).await;
        assert!(matches!(outcome, Err::<(), _>(BlockingError::Panicked)));
        assert_eq!(run(|| 7).await.expect("the next call works"), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_that_never_gets_its_turn_is_refused() {
        let slots = Arc::new(Semaphore::new(1));
        let held = transfer_slot(&slots).await.expect("free");
        assert!(matches!(transfer_slot(&slots).await, Err(BlockingError::Busy)));
        drop(held);
        transfer_slot(&slots).await.expect("free again");
    }
}
