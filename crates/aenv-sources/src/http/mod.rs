//! HTTP as sources need it: one request, one checked answer, attempts within a deadline. It decides where we may be
//! sent; what a request means is for the remotes above it.

mod address;
mod attempt;
mod client;
mod place;
mod range;
mod roots;

pub(crate) use attempt::{Attempts, Deadline, Failure};
pub use client::HttpOptions;
pub(crate) use client::{discard, HttpClient};
pub(crate) use place::Place;
pub(crate) use range::{receive, Wanted};
pub(crate) use ureq::http::{HeaderMap, Response};
pub(crate) use ureq::Body;

#[cfg(feature = "fuzzing")]
pub(crate) use range::parse_content_range;
