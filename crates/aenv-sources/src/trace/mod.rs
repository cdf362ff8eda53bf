//! Which bytes were read first, recorded in one life of an image and fetched ahead in the next.

mod format;
mod prefetch;
mod record;

pub use format::{InvalidTrace, Trace, TraceRecord};
pub use prefetch::{prefetch, PrefetchOptions, Prefetched};
pub use record::Recorder;
