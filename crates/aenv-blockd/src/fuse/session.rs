//! The threads that receive requests: one per descriptor of the mount, with buffers of their own.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;

use super::device::Device;
use super::negotiate::{MAX_TRANSFER, REQUEST_SIZE};
use super::service::{Outcome, Service};
use crate::image::READ_MARGIN;
use crate::log;

/// Starts a thread for each device; `gone` is called by each that ends because the mount is gone.
pub(crate) fn start(
    devices: Vec<Arc<Device>>,
    service: &Arc<Service>,
    gone: impl Fn() + Clone + Send + 'static,
) -> std::io::Result<()> {
    for device in devices {
        let service = Arc::clone(service);
        let gone = gone.clone();
        thread::Builder::new().name("fuse".into()).spawn(move || {
            receive(&device, &service);
            gone();
        })?;
    }
    Ok(())
}

/// Serves requests until the mount is gone.
fn receive(device: &Arc<Device>, service: &Service) {
    let mut request = vec![0; REQUEST_SIZE];
    let mut buffer = vec![0; MAX_TRANSFER + READ_MARGIN];
    loop {
        let length = match device.receive(&mut request) {
            Ok(0) => return,
            Ok(length) => length,
            // ENOENT: the asker took the request back while we came for it.
            Err(Errno::EINTR | Errno::EAGAIN | Errno::ENOENT) => continue,
            Err(errno) => {
                log::warning("mount_lost", &[("reason", &errno.desc())]);
                return;
            }
        };
        let serve = AssertUnwindSafe(|| service.serve(device, &request[..length], &mut buffer));
        // The answer was given when it was dropped, and locks recover: one request is lost, the thread goes on.
        if let Ok(Outcome::Gone) = catch_unwind(serve) {
            return;
        }
    }
}
