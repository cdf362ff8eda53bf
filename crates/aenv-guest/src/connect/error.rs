//! Connect's error codes and their two faces: HTTP status for unary calls, end frame for streams.

use hyper::StatusCode;
use serde::Serialize;

use crate::http::ReadError;
use crate::users::UserError;

/// A Connect error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "the set is closed by the protocol, not by what we happen to send")]
pub(crate) enum Code {
    /// The caller gave up.
    Canceled,
    /// No better code.
    Unknown,
    /// The request itself is wrong.
    InvalidArgument,
    /// The time limit passed.
    DeadlineExceeded,
    /// The named thing does not exist.
    NotFound,
    /// The thing to create exists.
    AlreadyExists,
    /// The caller may not do this.
    PermissionDenied,
    /// A limit is reached.
    ResourceExhausted,
    /// The world is not in the state the call needs.
    FailedPrecondition,
    /// Lost against a concurrent call.
    Aborted,
    /// Past the end.
    OutOfRange,
    /// The call or a variant of it does not exist.
    Unimplemented,
    /// An invariant broke.
    Internal,
    /// Try again later.
    Unavailable,
    /// Bytes are gone.
    DataLoss,
    /// Who are you?
    Unauthenticated,
}

impl Code {
    /// The name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Canceled => "canceled",
            Self::Unknown => "unknown",
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Aborted => "aborted",
            Self::OutOfRange => "out_of_range",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::DataLoss => "data_loss",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    /// The HTTP status of a unary call that fails with this code.
    pub(crate) fn status(self) -> StatusCode {
        let number = match self {
            Self::Canceled => 499,
            Self::InvalidArgument | Self::FailedPrecondition | Self::OutOfRange => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Aborted => 409,
            Self::ResourceExhausted => 429,
            Self::Unknown | Self::Internal | Self::DataLoss => 500,
            Self::Unimplemented => 501,
            Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        };
        StatusCode::from_u16(number).expect("the table holds valid statuses")
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ConnectError {
    /// What kind of failure.
    pub(crate) code: Code,
    /// What failed, for people.
    pub(crate) message: String,
}

impl ConnectError {
    /// A failure of the given kind.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The request itself is wrong.
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The named thing does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// Something of ours, or of the kernel's, failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// The JSON object of this error, as unary bodies and end frames carry it.
    pub(crate) fn to_json(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Wire<'a> {
            code: &'static str,
            message: &'a str,
        }
        Wire { code: self.code.as_str(), message: &self.message }
    }
}

impl From<UserError> for ConnectError {
    fn from(error: UserError) -> Self {
        Self::new(Code::Unauthenticated, error.to_string())
    }
}

impl From<ReadError> for ConnectError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge(_) => Self::new(Code::ResourceExhausted, error.to_string()),
            ReadError::Broken(_) => Self::invalid_argument(error.to_string()),
        }
    }
}
