//! Whom we believe: the certificates of the host's trust store, and those of a configured file.

use std::path::Path;

use ureq::tls::{parse_pem, Certificate, PemItem, RootCerts};

use crate::error::SourceError;

const MAX_FILE: u64 = 16 << 20;

/// Loads the trust store. A host without one gets none: encrypted sources then fail by name at the handshake.
pub(super) fn load(authorities_path: Option<&Path>) -> Result<RootCerts, SourceError> {
    let system = rustls_native_certs::load_native_certs();
    let mut roots: Vec<_> = system.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    if let Some(path) = authorities_path {
        roots.extend(read(path)?);
    }
    Ok(RootCerts::from(roots))
}

fn read(path: &Path) -> Result<Vec<Certificate<'static>>, SourceError> {
    let unusable =
        |reason: &str| SourceError::Credentials { path: path.to_owned(), reason: reason.to_owned() };
    let bytes = crate::bounded::read(path, MAX_FILE)?;
    let mut certificates = Vec::new();
    for item in parse_pem(&bytes) {
        match item.map_err(|_| unusable("it is not PEM"))? {
            PemItem::Certificate(certificate) => certificates.push(certificate),
            _ => return Err(unusable("it holds something else than certificates")),
        }
    }
    if certificates.is_empty() {
        return Err(unusable("it holds no certificate"));
    }
    Ok(certificates)
}
