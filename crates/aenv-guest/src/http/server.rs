//! The accept loop: one small task per connection. Knows nothing about routes.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::crowd::{Answering, Crowd, Place};
use super::{Request, Response};

/// For more clients than this, those go that have no request under way; without such they wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 8192;
/// Read and write buffer of a connection; also the bound on the size of a request's head.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// How long a connection may go without a whole request head. Also the life of an idle one, so it must be longer than
/// what proxies keep theirs for: a request that meets a closing connection is lost.
const HEAD_TIMEOUT: Duration = Duration::from_secs(600);

/// What the kernel lacks for another connection is not there again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Serves connections for ever, and says each time one has ended.
pub(crate) async fn serve<Answer, Answered, OnClose>(listener: TcpListener, answer: Answer, on_close: OnClose)
where
    OnClose: Fn() + Clone + Send + 'static,
    Answer: Fn(Request) -> Answered + Clone + Send + Sync + 'static,
    Answered: Future<Output = Response> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let crowd = Arc::<Crowd>::default();
    loop {
        if slots.available_permits() == 0 {
            crowd.evict();
        }
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if is_out_of_descriptors(&error) && crowd.evict() {
                    // The evicted connection closes now.
                    tokio::task::yield_now().await;
                } else {
                    pause_after(&error).await;
                }
                continue;
            }
        };
        let (answer, on_close, place) = (answer.clone(), on_close.clone(), crowd.join());
        tokio::spawn(async move {
            serve_connection(stream, answer, Arc::new(place)).await;
            drop(slot);
            on_close();
        });
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Out of descriptors or memory is temporary: spinning on it would make it worse.
async fn pause_after(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

async fn serve_connection<Answer, Answered>(stream: TcpStream, answer: Answer, place: Arc<Place>)
where
    Answer: Fn(Request) -> Answered + Send + Sync + 'static,
    Answered: Future<Output = Response> + Send + 'static,
{
    // Small frames must leave at once; without it a frame may wait for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let (answering, answered) = (place.begin(), answer(request));
        async move {
            let response = answered.await;
            Ok::<_, Infallible>(response.map(|body| HeldBody { body, _answering: answering }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A broken connection concerns only its client, which has noticed.
        _ = connection => {}
        () = place.evicted() => {}
    }
}

/// A body that keeps its connection from being evicted.
struct HeldBody {
    body: super::Body,
    _answering: Answering,
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
