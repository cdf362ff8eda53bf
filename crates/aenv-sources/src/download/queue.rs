//! The threads that fetch whole blobs, and the queue in which blobs take turns.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::job::{DownloadState, Job, Progress, Turn};
use super::throttle::Throttle;
use super::DownloadOptions;
use crate::gate::in_background;

struct Line {
    waiting: VecDeque<Job>,
    /// Those that a thread has at the moment, so that nothing is fetched twice.
    running: Vec<(crate::digest::Digest, Arc<Progress>)>,
    is_over: bool,
}

struct Desk {
    line: Mutex<Line>,
    changed: Condvar,
    throttle: Throttle,
    tries: u32,
}

/// Fetches blobs until it is dropped. Its threads end by themselves, after the request that they wait for.
pub(crate) struct Downloader(Arc<Desk>);

impl Downloader {
    pub(crate) fn start(options: &DownloadOptions) -> io::Result<Self> {
        let desk = Arc::new(Desk {
            line: Mutex::new(Line { waiting: VecDeque::new(), running: Vec::new(), is_over: false }),
            changed: Condvar::new(),
            throttle: Throttle::new(options.bytes_per_second),
            tries: options.tries,
        });
        let downloader = Self(desk);
        for _ in 0..options.workers.max(1) {
            let desk = Arc::clone(&downloader.0);
            let thread = std::thread::Builder::new().name("download".to_owned());
            thread.spawn(move || in_background(|| desk.work()))?;
        }
        Ok(downloader)
    }

    /// Queues a job, unless the same blob is queued already.
    pub(super) fn add(&self, job: Job) -> Arc<Progress> {
        let mut line = self.0.line.lock().unwrap_or_else(PoisonError::into_inner);
        let running = line.running.iter().find(|(digest, _)| *digest == job.digest);
        if let Some((_, progress)) = running {
            return Arc::clone(progress);
        }
        if let Some(waiting) = line.waiting.iter_mut().find(|waiting| waiting.digest == job.digest) {
            waiting.not_before = waiting.not_before.min(job.not_before);
            let progress = Arc::clone(&waiting.progress);
            self.0.changed.notify_one();
            return progress;
        }
        let progress = Arc::clone(&job.progress);
        line.waiting.push_back(job);
        self.0.changed.notify_one();
        progress
    }
}

impl Drop for Downloader {
    fn drop(&mut self) {
        let mut line = self.0.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.is_over = true;
        for job in line.waiting.drain(..) {
            job.progress.set(DownloadState::Closed);
        }
        self.0.changed.notify_all();
    }
}

impl Desk {
    fn work(&self) {
        while let Some(mut job) = self.next() {
            let turn = job.take_turn(self.tries, &|bytes| self.pause(self.throttle.charge(bytes)));
            let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
            line.running.retain(|(digest, _)| *digest != job.digest);
            match turn {
                Turn::Again if !line.is_over => line.waiting.push_back(job),
                Turn::Again => job.progress.set(DownloadState::Closed),
                Turn::Over => {}
            }
        }
    }

    /// The first job whose time has come; none at the end.
    fn next(&self) -> Option<Job> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if line.is_over {
                return None;
            }
            let now = Instant::now();
            if let Some(at) = line.waiting.iter().position(|job| job.not_before <= now) {
                let job = line.waiting.remove(at)?;
                line.running.push((job.digest, Arc::clone(&job.progress)));
                return Some(job);
            }
            let soonest = line.waiting.iter().map(|job| job.not_before).min();
            let wait = soonest.map_or(Duration::from_secs(3600), |soonest| soonest - now);
            let waited = self.changed.wait_timeout(line, wait);
            line = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps, and says whether to go on.
    fn pause(&self, duration: Duration) -> bool {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(line, duration, |line| !line.is_over);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }
}
