//! AWS Signature Version 4 for requests without a body and without a query.

use std::time::SystemTime;

use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256};

use super::credentials::Credentials;

/// The SHA-256 of nothing.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// What is signed.
pub(super) struct SignedRequest<'a> {
    pub(super) host: &'a str,
    /// The path, escaped as it is sent.
    pub(super) path: &'a str,
    pub(super) range: &'a str,
    pub(super) time: SystemTime,
}

impl SignedRequest<'_> {
    /// The headers of the request, `Authorization` among them.
    pub(super) fn headers(&self, credentials: &Credentials) -> Vec<(&'static str, String)> {
        let (date, time) = stamp(self.time);
        // In alphabetical order, as the signature wants them.
        let mut headers = vec![
            ("host", self.host.to_owned()),
            ("range", self.range.to_owned()),
            ("x-amz-content-sha256", EMPTY.to_owned()),
            ("x-amz-date", format!("{date}T{time}Z")),
        ];
        headers.extend(credentials.session_token.iter().map(|token| ("x-amz-security-token", token.clone())));
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical = format!("GET\n{}\n\n{lines}\n{names}\n{EMPTY}", self.path);
        let scope = format!("{date}/{}/s3/aws4_request", credentials.region);
        let hash = hex(&Sha256::digest(canonical));
        let text = format!("AWS4-HMAC-SHA256\n{date}T{time}Z\n{scope}\n{hash}");
        let signature = hex(&keyed(&signing_key(credentials, &date), &text));
        let key_id = &credentials.access_key_id;
        let value = format!(
            "AWS4-HMAC-SHA256 Credential={key_id}/{scope},SignedHeaders={names},Signature={signature}"
        );
        headers.push(("authorization", value));
        headers
    }
}

fn signing_key(credentials: &Credentials, date: &str) -> [u8; 32] {
    let secret = format!("AWS4{}", credentials.secret_access_key);
    let dated = keyed(secret.as_bytes(), date);
    let regional = keyed(&dated, &credentials.region);
    keyed(&keyed(&regional, "s3"), "aws4_request")
}

fn keyed(key: &[u8], text: &str) -> [u8; 32] {
    let mut code = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    code.update(text.as_bytes());
    code.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Date and time of day in UTC, as `20130524` and `000000`.
fn stamp(time: SystemTime) -> (String, String) {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    (format!("{year:04}{month:02}{day:02}"), format!("{hour:02}{minute:02}{second:02}"))
}

/// Year, month and day of a number of days since 1970. Years begin in March here, so that leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// The example "GET Object" of the documentation of AWS.
    #[test]
    fn the_published_example_gets_the_published_signature() {
        let credentials = Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
            region: "us-east-1".to_owned(),
        };
        let request = SignedRequest {
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            range: "bytes=0-9",
            time: at(1_369_353_600),
        };
        let (name, value) = request.headers(&credentials).pop().unwrap();
        let expected = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
            SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
            Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert_eq!((name, value.as_str()), ("authorization", expected));
    }

    #[test]
    fn days_become_dates() {
        for (seconds, date, time) in [
            (0, "19700101", "000000"),
            (951_782_399, "20000228", "235959"),
            (951_782_400, "20000229", "000000"),
            (1_709_251_199, "20240229", "235959"),
            (4_102_444_800, "21000101", "000000"),
        ] {
            assert_eq!(stamp(at(seconds)), (date.to_owned(), time.to_owned()));
        }
    }
}
