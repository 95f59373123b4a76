//! The body of a message: tensors, one after the other, each at a multiple of 8 bytes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Typed arrays of a browser can only look at bytes that start at a multiple of their
/// element's size; 8 serves all.
const ALIGNMENT: u64 = 8;

/// A tensor whose bytes lie in the body of the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct TensorSlice {
    /// The element type, such as `f32`.
    pub dtype: String,
    /// The dimensions.
    pub dims: Vec<u64>,
    /// Where its bytes start in the body.
    pub offset: u64,
    /// How many they are.
    pub byte_len: u64,
}

impl TensorSlice {
    /// Its bytes, without copying them.
    pub fn bytes(&self, body: &Bytes) -> Result<Bytes, BodyError> {
        let range = self.offset.checked_add(self.byte_len).and_then(|end| {
            let (start, end) = (usize::try_from(self.offset).ok()?, usize::try_from(end).ok()?);
            (end <= body.len() && self.offset.is_multiple_of(ALIGNMENT)).then_some(start..end)
        });
        let range = range.ok_or(BodyError {
            offset: self.offset,
            byte_len: self.byte_len,
            body_len: body.len(),
        })?;
        Ok(body.slice(range))
    }
}

/// A tensor that claims bytes which are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tensor of {byte_len} bytes at {offset} does not lie in a body of {body_len} bytes")]
pub struct BodyError {
    offset: u64,
    byte_len: u64,
    body_len: usize,
}

/// Lays tensors into a body. Their bytes are not copied before they go into a frame.
#[derive(Debug, Default)]
pub struct BodyWriter {
    pieces: Vec<Bytes>,
    len: u64,
}

impl BodyWriter {
    /// Adds a tensor and says where it lies.
    pub fn push(&mut self, dtype: &str, dims: Vec<u64>, bytes: Bytes) -> TensorSlice {
        let padding = self.len.next_multiple_of(ALIGNMENT) - self.len;
        if padding > 0 {
            self.pieces.push(Bytes::from_static(&[0; ALIGNMENT as usize][..padding as usize]));
            self.len += padding;
        }
        let (offset, byte_len) = (self.len, bytes.len() as u64);
        self.len += byte_len;
        self.pieces.push(bytes);
        TensorSlice { dtype: dtype.to_owned(), dims, offset, byte_len }
    }

    /// The pieces, for [`split`](crate::split).
    pub fn finish(self) -> Vec<Bytes> {
        self.pieces
    }
}
