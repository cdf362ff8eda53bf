//! `caBundle` of `/init`: certificates that programs in the guest are to trust as well. They go into the bundles that the
//! image has, as a block of ours that the next bundle replaces.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where distributions keep their bundle: Debian and Alpine, Alpine's and the BSDs' libressl, Fedora, openSUSE.
const BUNDLES: [&str; 6] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/ssl/cert.pem",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/ca-bundle.pem",
    "var/lib/ca-certificates/ca-bundle.pem",
];
/// From here `update-ca-certificates` makes the bundle anew.
const ANCHORS: [&str; 2] = ["usr/local/share/ca-certificates", "etc/pki/ca-trust/source/anchors"];
const ANCHOR_NAME: &str = "agentenv.crt";
const BEGIN: &str = "# AgentENV: begin\n";
const END: &str = "# AgentENV: end\n";
/// A bundle of all the world's authorities has a quarter of it.
const BUNDLE_BYTES_MAX: u64 = 4 << 20;
const CERTIFICATE_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const CERTIFICATE_END: &str = "-----END CERTIFICATE-----";

/// Whether this is a sequence of certificates in PEM form, and nothing that could be mistaken for our marks.
pub(super) fn is_bundle(text: &str) -> bool {
    let mut is_inside = false;
    for line in text.lines().map(str::trim_end) {
        match (is_inside, line) {
            (false, "") => {}
            (false, CERTIFICATE_BEGIN) => is_inside = true,
            (true, CERTIFICATE_END) => is_inside = false,
            (true, base64) if base64.bytes().all(is_base64) => {}
            _ => return false,
        }
    }
    !is_inside
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Puts the certificates into every store below `root`; an empty text takes them out again.
pub(super) fn install(root: &Path, certificates: &str) -> io::Result<()> {
    for anchors in ANCHORS.map(|name| root.join(name)).into_iter().filter(|path| path.is_dir()) {
        let anchor = anchors.join(ANCHOR_NAME);
        match certificates.is_empty() {
            true => remove(&anchor)?,
            false => replace(&anchor, &terminated(certificates), 0o644)?,
        }
    }
    // Several names often lead to the same file.
    let bundles: BTreeSet<PathBuf> =
        BUNDLES.iter().filter_map(|name| fs::canonicalize(root.join(name)).ok()).collect();
    bundles.iter().try_for_each(|bundle| install_one(bundle, certificates))
}

fn install_one(bundle: &Path, certificates: &str) -> io::Result<()> {
    let metadata = fs::metadata(bundle)?;
    // Whatever else the image has there is no bundle.
    if !metadata.is_file() || metadata.len() > BUNDLE_BYTES_MAX {
        return Ok(());
    }
    let old = fs::read_to_string(bundle)?;
    let new = with_block(&old, certificates);
    if new == old {
        return Ok(());
    }
    replace(bundle, &new, metadata.permissions().mode() & 0o7777)
}

/// The bundle with our block, and without the one before.
fn with_block(bundle: &str, certificates: &str) -> String {
    let mut text = match (bundle.find(BEGIN), bundle.find(END)) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}{}", &bundle[..begin], &bundle[end + END.len()..])
        }
        _ => bundle.to_owned(),
    };
    if !certificates.is_empty() {
        text = format!("{}{BEGIN}{}{END}", terminated(&text), terminated(certificates));
    }
    text
}

fn terminated(text: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}")
}

/// Writes beside and renames: readers see the old or the new content.
fn replace(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".agentenv-new");
    remove(Path::new(&beside))?;
    fs::write(&beside, content)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(mode))?;
    fs::rename(&beside, path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "-----BEGIN CERTIFICATE-----\nYWdlbnRlbnY=\n-----END CERTIFICATE-----\n";
    const OTHERS: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";

    #[test]
    fn only_certificates_are_a_bundle() {
        for good in ["", OURS, OTHERS, &format!("{OURS}\n{OURS}"), &OURS.replace('\n', "\r\n")] {
            assert!(is_bundle(good), "{good}");
        }
        for bad in [
            "x",
            BEGIN,
            "-----BEGIN CERTIFICATE-----\n",
            "-----END CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE-----\n# AgentENV: end\n-----END CERTIFICATE-----\n",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ] {
            assert!(!is_bundle(bad), "{bad}");
        }
    }

    #[test]
    fn certificates_come_in_once_are_replaced_and_go() {
        let root = tempfile::tempdir().expect("a directory");
        let bundle = root.path().join(BUNDLES[0]);
        fs::create_dir_all(bundle.parent().expect("a parent")).expect("made");
        fs::create_dir_all(root.path().join(ANCHORS[0])).expect("made");
        fs::write(&bundle, OTHERS).expect("written");
        fs::set_permissions(&bundle, fs::Permissions::from_mode(0o640)).expect("set");
        // A second name of the same file, as images have it.
        std::os::unix::fs::symlink("certs/ca-certificates.crt", root.path().join(BUNDLES[1]))
            .expect("linked");
        for _ in 0..2 {
            install(root.path(), OURS).expect("installed");
            let content = fs::read_to_string(&bundle).expect("read");
            assert_eq!(content, format!("{OTHERS}\n{BEGIN}{OURS}{END}"));
        }
        assert_eq!(fs::metadata(&bundle).expect("there").permissions().mode() & 0o777, 0o640);
        let anchor = root.path().join(ANCHORS[0]).join(ANCHOR_NAME);
        assert_eq!(fs::read_to_string(&anchor).expect("read"), OURS);
        install(root.path(), OTHERS).expect("installed");
        assert_eq!(fs::read_to_string(&bundle).expect("read"), format!("{OTHERS}\n{BEGIN}{OTHERS}\n{END}"));
        install(root.path(), "").expect("removed");
        assert_eq!(fs::read_to_string(&bundle).expect("read"), format!("{OTHERS}\n"));
        assert!(!anchor.exists());
    }

    #[test]
    fn an_image_without_stores_stays_as_it_is() {
        let root = tempfile::tempdir().expect("a directory");
        install(root.path(), OURS).expect("nothing to do");
        assert_eq!(fs::read_dir(root.path()).expect("a directory").count(), 0);
    }
}
