//! How a caller follows work and ends it: a progress function, called seldom, and a token, looked at often.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::failure::Failure;

/// Time between two calls into the interpreter.
const PERIOD: Duration = Duration::from_millis(100);

/// Ends the work that it was given to, from any thread. What was cancelled stays so.
#[pyclass(frozen, module = "agentenv_core")]
#[derive(Debug, Default)]
pub(crate) struct CancellationToken(Arc<AtomicBool>);

#[pymethods]
impl CancellationToken {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// End the work: it stops within the next MiB.
    fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether `cancel` was called.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What a caller passed to follow the work.
pub(crate) struct Watch {
    progress: Option<Py<PyAny>>,
    token: Option<Arc<AtomicBool>>,
}

impl Watch {
    pub(crate) fn new(progress: Option<Py<PyAny>>, token: Option<PyRef<'_, CancellationToken>>) -> Self {
        Self { progress, token: token.map(|token| Arc::clone(&token.0)) }
    }
}

/// Counts the bytes of work that are done, tells the caller now and then, and hears whether to go on.
pub(crate) struct Watcher {
    watch: Watch,
    done: u64,
    total: u64,
    next: Instant,
    reason: Option<Failure>,
}

impl Watcher {
    pub(crate) fn new(watch: Watch) -> Self {
        Self { watch, done: 0, total: 0, next: Instant::now() + PERIOD, reason: None }
    }

    /// Announces work of so many bytes, beyond what was announced before.
    pub(crate) fn expect(&mut self, bytes: u64) -> Result<(), Failure> {
        self.total += bytes;
        self.step(0)
    }

    /// Counts bytes as done. A failure means that the work has to end.
    pub(crate) fn step(&mut self, bytes: u64) -> Result<(), Failure> {
        self.done += bytes;
        if self.watch.token.as_ref().is_some_and(|token| token.load(Ordering::Acquire)) {
            return Err(Failure::Cancelled);
        }
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + PERIOD;
        self.call(|py| py.check_signals())
    }

    /// The same for the library's loops.
    pub(crate) fn flow(&mut self, bytes: u64) -> ControlFlow<()> {
        match self.step(bytes) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.reason = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    /// Tells the caller that everything is done.
    pub(crate) fn complete(&mut self) -> Result<(), Failure> {
        self.total = self.done;
        self.call(|_| Ok(()))
    }

    /// Why `flow` ended the work, if it did.
    pub(crate) fn take_reason(&mut self) -> Option<Failure> {
        self.reason.take()
    }

    /// Enters the interpreter; signals that came meanwhile are heard there, as when Python itself works.
    fn call(&self, before: impl FnOnce(Python<'_>) -> PyResult<()>) -> Result<(), Failure> {
        let outcome = Python::try_attach(|py| {
            before(py)?;
            match &self.watch.progress {
                Some(progress) => progress.call1(py, (self.done, self.total.max(self.done))).map(|_| ()),
                None => Ok(()),
            }
        });
        // Without an interpreter nobody waits for the result any more.
        outcome.unwrap_or_else(|| Ok(())).map_err(Failure::Raised)
    }
}
