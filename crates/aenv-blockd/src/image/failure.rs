//! What an access that failed leaves in the log, whoever asked for it.

use super::{AccessError, Image};
use crate::log;

impl Image {
    /// Counts a failure, and writes down one of the first.
    pub(crate) fn note_failure(&self, operation: &str, offset: u64, error: &AccessError) {
        let is_expected = matches!(error, AccessError::ReadOnly | AccessError::BehindEnd);
        if is_expected || !self.counters.count_error() {
            return;
        }
        log::error(
            "image_access_failed",
            &[
                ("image", &self.name().as_str()),
                ("operation", &operation),
                ("offset", &offset),
                ("reason", &log::chain(error)),
            ],
        );
    }
}
