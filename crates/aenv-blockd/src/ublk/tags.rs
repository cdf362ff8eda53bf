//! Who has each tag of a queue: the kernel, this program, or nobody any more. Pure bookkeeping; a tag that is given to
//! the kernel twice, or answered without having been received, would be a fault of this program.

/// Where a tag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// The kernel may hand out a request with it.
    Kernel,
    /// It belongs to a request that is being served.
    Server,
    /// The device stops: the kernel has given it back for good.
    Nobody,
}

/// What the kernel said about a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// There is a request to serve.
    Request,
    /// The device stops.
    End,
    /// Something that the kernel has no reason to say.
    Unexpected(i32),
}

/// All tags of a queue.
#[derive(Debug)]
pub(crate) struct Tags {
    holders: Vec<Holder>,
    /// How many are not with `Nobody`.
    alive: usize,
}

impl Tags {
    /// All tags are with the kernel.
    pub(crate) fn new(depth: u16) -> Self {
        Self { holders: vec![Holder::Kernel; usize::from(depth)], alive: usize::from(depth) }
    }

    /// The kernel gave a tag with a result.
    pub(crate) fn receive(&mut self, tag: u16, result: i32) -> Arrival {
        let Some(holder) = self.holders.get_mut(usize::from(tag)) else { return Arrival::Unexpected(result) };
        if *holder != Holder::Kernel {
            return Arrival::Unexpected(result);
        }
        if result == 0 {
            *holder = Holder::Server;
            return Arrival::Request;
        }
        *holder = Holder::Nobody;
        self.alive -= 1;
        if result == -libc::ENODEV {
            Arrival::End
        } else {
            Arrival::Unexpected(result)
        }
    }

    /// The request of a tag is answered: the tag goes back. False when it was not ours to give.
    pub(crate) fn give_back(&mut self, tag: u16) -> bool {
        match self.holders.get_mut(usize::from(tag)) {
            Some(holder) if *holder == Holder::Server => {
                *holder = Holder::Kernel;
                true
            }
            _ => false,
        }
    }

    /// Whether nothing can arrive any more.
    pub(crate) fn is_over(&self) -> bool {
        self.alive == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_tag_goes_back_and_forth_until_the_device_stops() {
        let mut tags = Tags::new(2);
        assert_eq!(tags.receive(1, 0), Arrival::Request);
        assert!(tags.give_back(1));
        assert_eq!(tags.receive(0, -libc::ENODEV), Arrival::End);
        assert!(!tags.is_over());
        assert_eq!(tags.receive(1, -libc::ENODEV), Arrival::End);
        assert!(tags.is_over());
    }

    #[test]
    fn test_a_request_under_way_keeps_the_queue_alive() {
        let mut tags = Tags::new(1);
        tags.receive(0, 0);
        assert!(!tags.is_over());
        tags.give_back(0);
        assert_eq!(tags.receive(0, -libc::ENODEV), Arrival::End);
        assert!(tags.is_over());
    }

    #[test]
    fn test_what_cannot_be_is_noticed_and_changes_nothing() {
        let mut tags = Tags::new(1);
        assert!(!tags.give_back(0), "nothing was received");
        assert!(!tags.give_back(7), "there is no such tag");
        assert_eq!(tags.receive(7, 0), Arrival::Unexpected(0));
        tags.receive(0, 0);
        assert_eq!(tags.receive(0, 0), Arrival::Unexpected(0), "it is being served");
        assert!(tags.give_back(0));
        assert!(!tags.give_back(0), "it was given back");
        assert!(!tags.is_over());
    }

    #[test]
    fn test_a_refusal_of_the_kernel_ends_the_tag() {
        let mut tags = Tags::new(1);
        assert_eq!(tags.receive(0, -libc::EINVAL), Arrival::Unexpected(-libc::EINVAL));
        assert!(tags.is_over());
    }
}
