//! CRC-32C as the compressed format uses it: the bare register, not inverted at either end.

/// Continues the register `seed` over `bytes`.
pub(crate) fn raw_crc32c(seed: u32, bytes: &[u8]) -> u32 {
    // The crate inverts at both ends; inverting again gives the register.
    !crc32c::crc32c_append(!seed, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_the_register_is_not_inverted() {
        assert_eq!(!raw_crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(raw_crc32c(0, b""), 0);
        assert_eq!(raw_crc32c(100_007, b""), 100_007);
    }
}
