//! From a verb to the table and back to an answer. No decisions of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{json, Value};

use super::request::{Compression, Prefetch, Verb, VERSION};
use crate::fuse::Agreement;
use crate::image::Range;
use crate::refusal::Refusal;
use crate::server::Stop;
use crate::table::{CloseMode, ExportOrder, SealOrder, Table, Wanted};

/// What verbs act on.
pub(crate) struct Control {
    pub(crate) table: Arc<Table>,
    pub(crate) mount: PathBuf,
    pub(crate) agreement: Agreement,
}

/// What comes of a verb.
pub(crate) struct Performed {
    pub(crate) result: Value,
    /// How the program shall end once the answer is on its way.
    pub(crate) stop: Option<Stop>,
}

impl Control {
    /// Does what is asked.
    pub(crate) fn perform(&self, verb: Verb) -> Result<Performed, Refusal> {
        let stop = match &verb {
            Verb::Shutdown(shutdown) => Some(self.how_to_stop(shutdown.keep)?),
            _ => None,
        };
        Ok(Performed { result: self.result_of(verb)?, stop })
    }

    fn result_of(&self, verb: Verb) -> Result<Value, Refusal> {
        match verb {
            Verb::Hello => Ok(self.hello()),
            Verb::Open(arguments) => {
                let opened = self.table.open(*arguments)?;
                Ok(json!({ "path": opened.path, "size_bytes": opened.size_bytes }))
            }
            Verb::Close(close) => {
                let mode = CloseMode { discards: close.discard, is_forced: close.force };
                let was_open = self.table.close(&close.name, mode)?;
                Ok(json!({ "was_open": was_open }))
            }
            Verb::Seal(seal) => {
                let order = SealOrder {
                    image: seal.name,
                    seal_id: seal.seal_id,
                    sealed_path: seal.sealed_path,
                    next_directory: seal.next_directory,
                };
                Ok(json!({ "frozen_microseconds": self.table.seal(&order)? }))
            }
            Verb::Sealed(asked) => {
                let sealed = self.table.sealed(&asked.name, &asked.seal_id, asked.digest)?;
                Ok(json!({
                    "path": sealed.seal.path,
                    "size_bytes": sealed.seal.size_bytes,
                    "digest": sealed.digest,
                }))
            }
            Verb::Export(export) => {
                if export.plain && (!export.flatten || export.compression.is_some()) {
                    return Err(Refusal::argument("a plain file is flat and not compressed"));
                }
                let order = ExportOrder {
                    image: export.name,
                    path: export.path,
                    is_packed: export.compression == Some(Compression::Lz4),
                    flattens: export.flatten,
                    is_plain: export.plain,
                };
                let exported = self.table.export(&order)?;
                Ok(json!({ "size_bytes": exported.size_bytes, "digest": exported.digest }))
            }
            Verb::Resize(resize) => {
                self.table.resize(&resize.name, resize.size_bytes)?;
                Ok(json!({}))
            }
            Verb::Prefetch(prefetch) => self.prefetch(prefetch),
            Verb::Record(record) => {
                let duration = Duration::from_secs(record.seconds);
                self.table.record(&record.name, &record.trace_path, duration)?;
                Ok(json!({}))
            }
            Verb::Stat(named) => self.table.stat(&named.name),
            Verb::List(list) => Ok(self.table.list(list.behind.as_ref())),
            Verb::Shutdown(_) => Ok(json!({})),
        }
    }

    fn hello(&self) -> Value {
        json!({
            "version": VERSION,
            "program": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "mount": self.mount,
            "exporters": self.table.exporter().kinds(),
            "resend": self.agreement.can_resend(),
            "passthrough": self.agreement.can_pass_through(),
        })
    }

    fn prefetch(&self, asked: Prefetch) -> Result<Value, Refusal> {
        let wanted = match (asked.ranges, asked.trace_path) {
            (Some(ranges), None) => {
                let ranges = ranges.into_iter().map(|(offset, length)| Range { offset, length });
                Wanted::Ranges(ranges.collect())
            }
            (None, Some(path)) => Wanted::Trace(path),
            _ => return Err(Refusal::argument("give either \"ranges\" or \"trace_path\"")),
        };
        let done = self.table.prefetch(&asked.name, wanted)?;
        Ok(json!({ "read_bytes": done.read_bytes, "cached_bytes": done.cached_bytes }))
    }

    fn how_to_stop(&self, keeps_mount: bool) -> Result<Stop, Refusal> {
        match (keeps_mount, self.table.count()) {
            (true, _) => Ok(Stop::Replace),
            (false, 0) => Ok(Stop::End),
            (false, images) => Err(Refusal::ImagesOpen(images)),
        }
    }
}
