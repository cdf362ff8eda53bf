//! The accept loop: one small task per connection. Knows nothing about routes.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::{Request, Response};

/// More clients than this wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 8192;
/// Read and write buffer of a connection; also the bound on the size of a request's head.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// How long a connection may go without a whole request head. Also the life of an idle one, so it must be longer than
/// what proxies keep theirs for: a request that meets a closing connection is lost.
const HEAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Serves connections for ever, and says each time one has ended.
pub(crate) async fn serve<Answer, Answering, OnClose>(
    listener: TcpListener,
    answer: Answer,
    on_close: OnClose,
) where
    OnClose: Fn() + Clone + Send + 'static,
    Answer: Fn(Request) -> Answering + Clone + Send + Sync + 'static,
    Answering: Future<Output = Response> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let (answer, on_close) = (answer.clone(), on_close.clone());
        tokio::spawn(async move {
            serve_connection(stream, answer).await;
            drop(slot);
            on_close();
        });
    }
}

/// Out of descriptors or memory is temporary: spinning on it would make it worse.
async fn pause_after(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn serve_connection<Answer, Answering>(stream: TcpStream, answer: Answer)
where
    Answer: Fn(Request) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = Response> + Send + 'static,
{
    // Small frames must leave at once; without it a frame may wait for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let answering = answer(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // A broken connection concerns only its client, which has noticed.
    let _ = connection.await;
}
