//! The kernel's account of memory, `/proc/meminfo`.

/// Its text.
pub(super) struct Meminfo(pub(super) String);

impl Meminfo {
    /// One figure, in bytes; 0 when it is not there.
    pub(super) fn bytes(&self, name: &str) -> u64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0).saturating_mul(1024)
    }
}
