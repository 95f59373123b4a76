//! What can go wrong on a device.

use std::fmt;

/// Whose fault it was, which decides whether asking again or elsewhere can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is wrong; it would be wrong everywhere.
    Caller,
    /// The device failed; another one may do better.
    Device,
    /// The deadline passed.
    Timeout,
    /// There is not enough memory on this device.
    Memory,
    /// The caller cancelled.
    Cancelled,
    /// The queue is full; later there may be room.
    Busy,
    /// The device lost what it had loaded or kept; load it again.
    StateLost,
    /// The device said what it must not say, and was let go.
    Protocol,
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [ErrorKind; 8] = [
        ErrorKind::Caller,
        ErrorKind::Device,
        ErrorKind::Timeout,
        ErrorKind::Memory,
        ErrorKind::Cancelled,
        ErrorKind::Busy,
        ErrorKind::StateLost,
        ErrorKind::Protocol,
    ];

    /// What it is called where errors are counted. Programs read it, so it stays as it is; people
    /// read what it displays as.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Caller => "caller",
            ErrorKind::Device => "device",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Memory => "memory",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Busy => "busy",
            ErrorKind::StateLost => "state_lost",
            ErrorKind::Protocol => "protocol",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Caller => "bad request",
            ErrorKind::Device => "device failed",
            ErrorKind::Timeout => "deadline passed",
            ErrorKind::Memory => "out of memory",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Busy => "busy",
            ErrorKind::StateLost => "state lost",
            ErrorKind::Protocol => "protocol broken",
        })
    }
}

/// An error of a device: its kind, what it is about, what caused it.
#[derive(Debug, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct DeviceError {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl DeviceError {
    /// An error with no cause below it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> DeviceError {
        DeviceError { kind, message: message.into(), source: None }
    }

    /// The caller's fault.
    pub fn caller(message: impl Into<String>) -> DeviceError {
        DeviceError::new(ErrorKind::Caller, message)
    }

    /// An error with a cause, which is kept and not repeated in the message.
    pub fn caused(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> DeviceError {
        DeviceError { kind, message: message.into(), source: Some(source.into()) }
    }

    /// Whose fault it was.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
