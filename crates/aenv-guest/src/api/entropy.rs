//! Fresh randomness from the host. Clones of one snapshot would otherwise draw the same "random" numbers.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;

/// Largest seed accepted.
pub(super) const SEED_BYTES_MAX: usize = 4096;

const RNDADDENTROPY: u32 = 0x4008_5203;
const RNDRESEEDCRNG: u32 = 0x5207;

/// The kernel's `struct rand_pool_info` with room for the largest seed.
#[repr(C)]
struct Pool {
    entropy_bits: libc::c_int,
    seed_bytes: libc::c_int,
    seed: [u8; SEED_BYTES_MAX],
}

/// Mixes the seed into the kernel's pool and makes the generator use it at once.
pub(super) fn reseed(seed: &[u8]) -> io::Result<()> {
    let length = libc::c_int::try_from(seed.len().min(SEED_BYTES_MAX)).map_err(io::Error::other)?;
    let mut pool = Pool { entropy_bits: length * 8, seed_bytes: length, seed: [0; SEED_BYTES_MAX] };
    pool.seed[..seed.len().min(SEED_BYTES_MAX)].copy_from_slice(&seed[..seed.len().min(SEED_BYTES_MAX)]);
    let random = OpenOptions::new().write(true).open("/dev/urandom")?;
    // SAFETY: the kernel reads `seed_bytes` bytes of the structure, which are all there; the second call has no pointer.
    unsafe {
        nix::errno::Errno::result(libc::ioctl(random.as_raw_fd(), RNDADDENTROPY as _, &raw const pool))?;
        nix::errno::Errno::result(libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG as _))?;
    }
    Ok(())
}
