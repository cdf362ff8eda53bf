//! The thread of one queue of a disk: receives requests, has them served, gives their results to the kernel.

use std::io;
use std::os::fd::AsRawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use io_uring::squeue::Entry;
use io_uring::IoUring;
use nix::errno::Errno;

use super::character::{Character, Descriptors};
use super::command::{self, BELL};
use super::mailbox::{Answer, Mailbox};
use super::request::Request;
use super::tags::{Arrival, Tags};
use super::thread::prepare;
use super::transfer::Work;
use crate::image::Image;
use crate::log;

/// Enough for the deepest call, far below the default.
const STACK_SIZE: usize = 256 << 10;

/// Which queue of what.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) image: Arc<Image>,
    pub(crate) character: Arc<Character>,
    pub(crate) number: u16,
    pub(crate) depth: u16,
}

/// Starts the thread of a queue. When this returns, the queue fetches; its thread ends when the device stops.
pub(crate) fn start(place: Place) -> io::Result<JoinHandle<()>> {
    let (ready, begun) = channel();
    let run = move || serve(place, &ready);
    let thread = thread::Builder::new().name("ublk".into()).stack_size(STACK_SIZE).spawn(run)?;
    // A thread that ends without a word has panicked.
    let begun = begun.recv().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
    match begun {
        Ok(()) => Ok(thread),
        Err(error) => {
            let _ = thread.join();
            Err(error)
        }
    }
}

fn serve(place: Place, ready: &Sender<io::Result<()>>) {
    let image = Arc::clone(&place.image);
    let mut queue = match Queue::begin(place) {
        Ok(queue) => queue,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    // Whoever started this thread listens.
    let _ = ready.send(Ok(()));
    if let Err(error) = queue.run() {
        let (image, reason) = (image.name().as_str(), error.to_string());
        log::error("queue_failed", &[("image", &image), ("reason", &reason)]);
        // Requests of this queue would wait for good. The next server takes over every device, and hands them out again.
        std::process::exit(1);
    }
}

struct Queue {
    place: Place,
    ring: IoUring,
    descriptors: Descriptors,
    mailbox: Arc<Mailbox>,
    tags: Tags,
    buffer: Vec<u8>,
}

impl Queue {
    /// Asks for the first requests. The ring belongs to this thread, as the kernel wants it.
    fn begin(place: Place) -> io::Result<Self> {
        prepare()?;
        let entries = u32::from(place.depth) + 1;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .build(entries.next_power_of_two())?;
        let descriptors = place.character.descriptors(place.number, place.depth)?;
        let mailbox = Mailbox::new()?;
        let tags = Tags::new(place.depth);
        let mut queue = Self { place, ring, descriptors, mailbox, tags, buffer: Vec::new() };
        for tag in 0..queue.place.depth {
            let entry = command::fetch(queue.place.character.as_raw_fd(), queue.place.number, tag);
            queue.push(&entry);
        }
        queue.listen();
        queue.ring.submit()?;
        // The device does not hand out requests yet: what is complete has failed.
        let failed = queue.ring.completion().next();
        failed.map_or(Ok(queue), |entry| Err(io::Error::from_raw_os_error(-entry.result())))
    }

    /// Serves until the device stops.
    fn run(&mut self) -> io::Result<()> {
        let mut arrived = Vec::new();
        let mut answers = Vec::new();
        while !self.tags.is_over() {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            arrived.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
            for (source, result) in arrived.drain(..) {
                if source == BELL {
                    self.mailbox.empty(&mut answers);
                    self.listen();
                } else {
                    self.receive(source as u16, result)?;
                }
            }
            for answer in answers.drain(..) {
                self.commit(answer)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, tag: u16, result: i32) -> io::Result<()> {
        match self.tags.receive(tag, result) {
            Arrival::End => Ok(()),
            Arrival::Unexpected(result) => Err(io::Error::from_raw_os_error(-result)),
            Arrival::Request => {
                let work = match self.work_on(tag) {
                    Ok(work) => work,
                    Err(errno) => return self.commit((tag, -(errno as i32))),
                };
                // A panic costs the request and not the queue; locks recover.
                let buffer = &mut self.buffer;
                let at_once = AssertUnwindSafe(|| work.at_once(buffer));
                if let Some(result) = catch_unwind(at_once).unwrap_or(Some(-libc::EIO)) {
                    return self.commit((tag, result));
                }
                // Whatever happens to the work, its answer comes by the mailbox.
                let _ = catch_unwind(AssertUnwindSafe(|| work.leave(&self.mailbox)));
                Ok(())
            }
        }
    }

    fn work_on(&self, tag: u16) -> Result<Work, Errno> {
        Ok(Work {
            image: Arc::clone(&self.place.image),
            character: Arc::clone(&self.place.character),
            queue: self.place.number,
            tag,
            request: Request::parse(&self.descriptors.get(tag))?,
        })
    }

    fn commit(&mut self, (tag, result): Answer) -> io::Result<()> {
        if !self.tags.give_back(tag) {
            return Err(io::Error::other(format!("tag {tag} was answered twice")));
        }
        let entry = command::commit(self.place.character.as_raw_fd(), self.place.number, tag, result);
        self.push(&entry);
        Ok(())
    }

    fn listen(&mut self) {
        let entry = command::listen(self.mailbox.bell());
        self.push(&entry);
    }

    fn push(&mut self, entry: &Entry) {
        // SAFETY: entries name descriptors that this queue keeps open, and no memory.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the ring has an entry for each tag and one for the bell");
    }
}
