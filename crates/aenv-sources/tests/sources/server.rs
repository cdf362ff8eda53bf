//! An HTTP server whose every answer is decided by the test, so that it can lie, dawdle and break off.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it came over the wire. Names of headers are in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// First and last byte of the range that is asked for.
    pub(crate) fn range(&self) -> (usize, usize) {
        let text = self.header("range").expect("a range is always asked for");
        let (first, last) = text.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        (first.parse().unwrap(), last.parse().unwrap())
    }
}

/// An answer, and what goes wrong with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The length that is announced, if it is not the true one.
    announced: Option<usize>,
    pause: Option<Duration>,
    is_chunked: bool,
}

impl Reply {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// The right answer to a request for a range.
    pub(crate) fn range(request: &Request, content: &[u8]) -> Self {
        let (first, last) = request.range();
        Self::new(206)
            .with("Content-Range", &format!("bytes {first}-{last}/{}", content.len()))
            .body(&content[first..=last])
    }

    pub(crate) fn redirect(location: &str) -> Self {
        Self::new(307).with("Location", location)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// Announces the whole body and breaks off after a part of it.
    pub(crate) fn cut(mut self, length: usize) -> Self {
        self.announced = Some(self.body.len());
        self.body.truncate(length);
        self
    }

    /// Does not say how long the body is.
    pub(crate) fn chunked(mut self) -> Self {
        self.is_chunked = true;
        self
    }

    /// Waits before each byte of the body.
    pub(crate) fn dawdle(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {} Words\r\n", self.status);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if self.is_chunked {
            head += &format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", self.body.len());
            stream.write_all(&[head.as_bytes(), &self.body, b"\r\n0\r\n\r\n"].concat())?;
            return Ok(());
        }
        head += &format!("Content-Length: {}\r\n\r\n", self.announced.unwrap_or(self.body.len()));
        stream.write_all(head.as_bytes())?;
        let Some(pause) = self.pause else { return stream.write_all(&self.body) };
        for byte in &self.body {
            std::thread::sleep(pause);
            stream.write_all(&[*byte])?;
        }
        Ok(())
    }
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// The server. Its threads end with the process.
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, script): (_, Arc<Script>) = (Arc::clone(&requests), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, script) = (Arc::clone(&log), Arc::clone(&script));
                std::thread::spawn(move || serve(stream.unwrap(), &log, &*script));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<Request>>, script: &Script) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read_request(&mut reader) {
        log.lock().unwrap().push(request.clone());
        let reply = script(&request);
        let is_cut = reply.announced.is_some();
        // The client may have had enough.
        if reply.send(&mut stream).is_err() || is_cut {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Some(Request { path, headers })
}
