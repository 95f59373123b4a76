//! A connection that does not wait for ever for the other side to read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail when nothing of them was taken for some time.
pub(crate) struct Patient<S> {
    stream: S,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
    /// Whether a write waits, and the deadline counts.
    waits: bool,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Patient<S> {
        Patient { stream, limit, deadline: Box::pin(tokio::time::sleep(limit)), waits: false }
    }

    /// What a write comes to: an error if it has waited for too long.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.deadline.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other side does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_fails() {
        let (near, _far) = tokio::io::duplex(16);
        let mut patient = Patient::new(near, LIMIT);
        let error = patient.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_everything() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut patient = Patient::new(near, LIMIT);
        let write = async {
            patient.write_all(&[7; 100]).await.unwrap();
            drop(patient);
        };
        let read = async {
            let mut all = Vec::new();
            let mut some = [0; 10];
            loop {
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                match far.read(&mut some).await.unwrap() {
                    0 => break all,
                    length => all.extend_from_slice(&some[..length]),
                }
            }
        };
        assert_eq!(tokio::join!(write, read).1, [7; 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_anything_to_write_does_not_count() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut patient = Patient::new(near, LIMIT);
        for _ in 0..3 {
            tokio::time::sleep(LIMIT * 2).await;
            patient.write_all(&[7; 16]).await.unwrap();
            far.read_exact(&mut [0; 16]).await.unwrap();
        }
    }
}
