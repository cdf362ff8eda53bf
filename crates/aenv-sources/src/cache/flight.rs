//! A fetch that several readers wait for. Whoever waits gets the bytes from memory, whether they were stored or not.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::error::SourceError;

/// Bytes that have just arrived.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Run {
    /// Copies what the run has from `offset` on, and says how much that was.
    pub(crate) fn copy(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let start = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
        let Some(rest) = self.bytes.get(start..) else { return 0 };
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }
}

/// How a flight ended.
#[derive(Clone, Debug)]
pub(crate) enum Landing {
    /// With bytes.
    Arrived(Arc<Run>),
    /// The remote with this number could not deliver; another remote might.
    Failed(SourceError, u64),
    /// Whoever had the chunk let go of it: look again.
    Released,
}

/// What waits and what is waited for.
#[derive(Default)]
pub(crate) struct Flight {
    landing: Mutex<Option<Landing>>,
    landed: Condvar,
}

impl Flight {
    pub(crate) fn wait(&self) -> Landing {
        let landing = self.landing.lock().unwrap_or_else(PoisonError::into_inner);
        let landing = self.landed.wait_while(landing, |landing| landing.is_none());
        let landing = landing.unwrap_or_else(PoisonError::into_inner);
        landing.clone().unwrap_or(Landing::Released)
    }

    pub(crate) fn land(&self, landing: Landing) {
        *self.landing.lock().unwrap_or_else(PoisonError::into_inner) = Some(landing);
        self.landed.notify_all();
    }
}
