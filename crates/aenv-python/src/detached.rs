//! The way out of the interpreter and back: without its lock, and without panics.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::marker::Ungil;
use pyo3::{PyResult, Python};

use crate::failure::Failure;
use crate::watch::{Watch, Watcher};

/// Does the work while other Python threads run.
pub(crate) fn run<T, W>(py: Python<'_>, watch: Watch, work: W) -> PyResult<T>
where
    T: Ungil + Send,
    W: FnOnce(&mut Watcher) -> Result<T, Failure> + Ungil + Send,
{
    py.detach(|| {
        let mut watcher = Watcher::new(watch);
        let outcome = contain(|| work(&mut watcher));
        // What a progress function raised explains the cancellation that it caused.
        watcher.take_reason().map_or(outcome, Err)
    })
    .map_err(Into::into)
}

/// A panic must not unwind into the interpreter, where no `except Exception` would see it.
fn contain<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // What the work has touched is dropped with it; only the watcher is looked at afterwards.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Failure::Panic(message_of(&*panic))))
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic").to_owned()
}
