//! Who may use `/files`: the holder of the token, or of a URL that the holder signed.

use super::errors::FileError;
use super::signature::{self, Operation, Signed};
use crate::daemon::{is_equal, UNAUTHORISED};
use crate::http::Query;

/// The exact text is part of the contract.
const EXPIRED: &str = "signature is already expired";

/// What the request offers to prove its right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// The `X-Access-Token` header.
    pub(crate) token: Option<&'a [u8]>,
    /// The query, which may hold a signature.
    pub(crate) query: &'a Query,
    /// What the request wants to do.
    pub(crate) operation: Operation,
}

/// Judges a claim. A wrong token is refused even next to a good signature.
pub(crate) fn check(claim: &Claim<'_>, secret: Option<&str>, now_seconds: i64) -> Result<(), FileError> {
    let Some(secret) = secret else { return Ok(()) };
    match claim.token {
        Some(token) if is_equal(token, secret.as_bytes()) => Ok(()),
        Some(_) => Err(FileError::Unauthorised(UNAUTHORISED.into())),
        None => check_signature(claim, secret, now_seconds),
    }
}

fn check_signature(claim: &Claim<'_>, secret: &str, now_seconds: i64) -> Result<(), FileError> {
    let given = claim.query.get("signature").ok_or_else(|| FileError::Unauthorised(UNAUTHORISED.into()))?;
    let expiration = claim.query.get("signature_expiration").map(parse_expiration).transpose()?;
    let signed = Signed {
        path: claim.query.get("path").unwrap_or_default(),
        username: claim.query.get("username").unwrap_or_default(),
        operation: claim.operation,
        expiration,
    };
    if !is_equal(given.as_bytes(), signature::sign(&signed, secret).as_bytes()) {
        return Err(FileError::Unauthorised("invalid signature".into()));
    }
    match expiration {
        Some(expiration) if now_seconds > expiration => Err(FileError::Unauthorised(EXPIRED.into())),
        _ => Ok(()),
    }
}

fn parse_expiration(text: &str) -> Result<i64, FileError> {
    text.parse().map_err(|_| FileError::Invalid("signature_expiration must be a number of seconds".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Option<&str> = Some("secret");
    const NOW: i64 = 1_000;

    fn judge(token: Option<&str>, query: &str, operation: Operation) -> Result<(), String> {
        let uri: hyper::Uri = format!("/files?{query}").parse().expect("a valid URI");
        let query = Query::of(&uri);
        let claim = Claim { token: token.map(str::as_bytes), query: &query, operation };
        check(&claim, SECRET, NOW).map_err(|error| error.to_string())
    }

    fn signed_query(path: &str, expiration: Option<i64>) -> String {
        let signed = Signed { path, username: "", operation: Operation::Read, expiration };
        let signature = signature::sign(&signed, "secret").replace('+', "%2B").replace('/', "%2F");
        let tail = expiration.map(|seconds| format!("&signature_expiration={seconds}")).unwrap_or_default();
        format!("path={path}&signature={signature}{tail}")
    }

    #[test]
    fn without_a_secret_everything_is_open() {
        let query = Query::default();
        let claim = Claim { token: None, query: &query, operation: Operation::Write };
        assert!(check(&claim, None, NOW).is_ok());
    }

    #[test]
    fn the_token_opens_and_a_wrong_one_closes() {
        assert_eq!(judge(Some("secret"), "path=a", Operation::Read), Ok(()));
        assert_eq!(judge(Some("other"), &signed_query("a", None), Operation::Read), Err(UNAUTHORISED.into()));
        assert_eq!(judge(None, "path=a", Operation::Read), Err(UNAUTHORISED.into()));
    }

    #[test]
    fn a_signature_opens_its_own_path_and_operation() {
        assert_eq!(judge(None, &signed_query("a", None), Operation::Read), Ok(()));
        assert_eq!(judge(None, &signed_query("a", Some(NOW)), Operation::Read), Ok(()));
        assert_eq!(judge(None, &signed_query("a", None), Operation::Write), Err("invalid signature".into()));
        let moved = signed_query("a", None).replace("path=a", "path=b");
        assert_eq!(judge(None, &moved, Operation::Read), Err("invalid signature".into()));
    }

    #[test]
    fn an_expired_signature_says_so_only_to_its_owner() {
        let expired = signed_query("a", Some(NOW - 1));
        assert_eq!(judge(None, &expired, Operation::Read), Err(EXPIRED.into()));
        let forged = expired.replace("=999", "=9999");
        assert_eq!(judge(None, &forged, Operation::Read), Err("invalid signature".into()));
        assert!(judge(None, &format!("{expired}x"), Operation::Read).is_err());
    }
}
