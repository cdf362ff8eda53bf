//! A real registry, as Debian packages it: open, with a password, encrypted.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aenv_sources::{HttpOptions, SourceError, SourceFactory, SourceOptions};

use crate::support::{cannot_test, content, digest, impatient, read, registry, uncached, write};

/// The password `secret` for `name`.
const PASSWORDS: &str = "name:$2y$04$4I7IPiMZi1OnHIRITH5YKOLoWlsfpqPuxY3jBvAR.P38Eh2WVWGHa\n";

/// A running registry; killed when dropped.
struct Registry {
    child: Child,
    address: SocketAddr,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where `scripts/bootstrap dev` puts it, or where the system has it.
fn program() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/tools/docker-registry");
    let directories = std::env::var_os("PATH")?;
    let system = std::env::split_paths(&directories).map(|path| path.join("docker-registry"));
    std::iter::once(own).chain(system).find(|path| path.exists())
}

impl Registry {
    /// Starts it with a blob in it, put there as it lies on its disk.
    fn start(program: &Path, directory: &Path, blob: &[u8], settings: &str, tls: &str) -> Self {
        let root = directory.join("registry");
        let digest = digest(blob).to_string();
        let hash = digest.strip_prefix("sha256:").unwrap();
        let base = root.join("docker/registry/v2");
        let blobs = base.join("blobs/sha256").join(&hash[..2]).join(hash);
        let link = base.join("repositories/team/app/_layers/sha256").join(hash);
        for (place, name, bytes) in [(&blobs, "data", blob), (&link, "link", digest.as_bytes())] {
            std::fs::create_dir_all(place).unwrap();
            std::fs::write(place.join(name), bytes).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
            http: {{addr: '{address}', secret: x{tls}}}\n{settings}",
            root.display()
        );
        let path = write(directory, "registry.yml", &text);
        let child =
            Command::new(program).arg("serve").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let registry = Self { child: child.unwrap(), address };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(30), "the registry answers");
            std::thread::yield_now();
        }
        registry
    }
}

#[test]
fn blobs_of_an_open_registry_are_read() {
    let Some(program) = program() else { return cannot_test("docker-registry: run scripts/bootstrap dev") };
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(300_000);
    let running = Registry::start(&program, directory.path(), &bytes, "", "");
    let url = format!("http://{}", running.address);
    let factory = uncached();
    let source = factory.open(&registry(&url, &bytes, None)).unwrap();
    assert_eq!(read(&source, 0, bytes.len()).unwrap(), bytes);
    assert_eq!(read(&source, 299_990, 100).unwrap(), bytes[299_990..]);
    let absent = factory.open(&registry(&url, b"never pushed", None)).unwrap();
    assert!(matches!(read(&absent, 0, 1), Err(SourceError::NotFound { .. })));
}

#[test]
fn a_password_opens_a_closed_registry() {
    let Some(program) = program() else { return cannot_test("docker-registry: run scripts/bootstrap dev") };
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(10_000);
    let passwords = write(directory.path(), "passwords", PASSWORDS);
    let settings = format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", passwords.display());
    let running = Registry::start(&program, directory.path(), &bytes, &settings, "");
    let url = format!("http://{}", running.address);
    let factory = uncached();
    let attempt = |password: &str| {
        let text =
            format!(r#"{{"auths":{{"{}":{{"username":"name","password":"{password}"}}}}}}"#, running.address);
        let path = write(directory.path(), password, &text);
        read(&factory.open(&registry(&url, &bytes, Some(&path))).unwrap(), 5000, 100)
    };
    assert_eq!(attempt("secret").unwrap(), bytes[5000..5100]);
    assert!(matches!(attempt("wrong"), Err(SourceError::Denied { status: 401, .. })));
}

/// A certificate for this host, and its key. It is its own authority, but does not claim to be one: a certificate that
/// does is not accepted for a server.
fn make_certificate(directory: &Path) -> Option<(PathBuf, PathBuf)> {
    let settings = write(directory, "openssl.conf", "[req]\ndistinguished_name=name\n[name]\n");
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args([Path::new("-config"), &settings, Path::new("-keyout"), &key, Path::new("-out"), &certificate])
        .stderr(Stdio::null())
        .status();
    made.is_ok_and(|status| status.success()).then_some((certificate, key))
}

#[test]
fn an_encrypted_registry_is_believed_with_its_authority_only() {
    let Some(program) = program() else { return cannot_test("docker-registry: run scripts/bootstrap dev") };
    let directory = tempfile::tempdir().unwrap();
    let Some((certificate, key)) = make_certificate(directory.path()) else { return cannot_test("openssl") };
    let bytes = content(10_000);
    let tls = format!(", tls: {{certificate: {}, key: {}}}", certificate.display(), key.display());
    let running = Registry::start(&program, directory.path(), &bytes, "", &tls);
    let reference = registry(&format!("https://{}", running.address), &bytes, None);
    let attempt = |authorities_path: Option<PathBuf>| {
        let http = HttpOptions { authorities_path, ..impatient() };
        let factory = SourceFactory::new(SourceOptions { http, ..SourceOptions::default() }).unwrap();
        read(&factory.open(&reference).unwrap(), 5000, 100)
    };
    assert_eq!(attempt(Some(certificate)).unwrap(), bytes[5000..5100]);
    match attempt(None) {
        Err(SourceError::Unavailable { cause, .. }) => assert!(cause.contains("certificate"), "{cause}"),
        other => panic!("{other:?}"),
    }
    let http = HttpOptions { authorities_path: Some(key), ..impatient() };
    let refused = SourceFactory::new(SourceOptions { http, ..SourceOptions::default() }).err();
    assert!(matches!(refused, Some(SourceError::Credentials { .. })), "a private key is no authority");
}
