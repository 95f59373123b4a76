//! Frames: how a message travels.
//!
//! A frame is a little-endian `u32` with the length of the header, the header in JSON, zeros up
//! to a multiple of 8, and bytes of the body. The first frame of a message has the message in
//! its header, the others only say to which message they belong.

use std::collections::{HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{
    BODY_LIMIT, FRAME_BODY_LIMIT, FRAME_LIMIT, HEADER_LIMIT, OPEN_BYTES_LIMIT, OPEN_MESSAGES_LIMIT,
};

/// The header of a frame.
#[derive(Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Header<M> {
    /// The first frame of a message.
    Start { id: u32, body_len: u64, message: M },
    /// A further one.
    Rest { id: u32 },
}

/// What is wrong with a frame.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum FrameError {
    #[error("a frame of {0} bytes passes the limit of {FRAME_LIMIT}")]
    TooLong(usize),
    #[error("a header of {0} bytes passes the limit of {HEADER_LIMIT}, or the frame's end")]
    HeaderLength(usize),
    #[error("the header makes no sense")]
    Header(#[source] serde_json::Error),
    #[error("a body of {0} bytes passes the limit of {BODY_LIMIT}")]
    BodyTooLong(u64),
    #[error("a frame with {0} bytes of body; at most {FRAME_BODY_LIMIT} are allowed")]
    FrameBodyTooLong(usize),
    #[error("message {id} announced {announced} bytes of body and sent more")]
    BodyOverrun { id: u32, announced: u64 },
    #[error("the first frame of message {id} has {sent} bytes of body, less than it could")]
    Stalled { id: u32, sent: usize },
    #[error("message {0} began twice")]
    Again(u32),
    #[error("a further frame of message {0}, which has not begun")]
    NotBegun(u32),
    #[error("{OPEN_MESSAGES_LIMIT} messages are under way in parts already")]
    TooManyOpen,
    #[error("messages under way in parts have more than {0} bytes together")]
    TooManyBytes(u64),
}

/// Splits a message into frames, lazily: each is made when it is asked for, so that a large body
/// is never there twice. `id` tells it apart from other messages under way on this connection.
pub fn split<M: Serialize>(id: u32, message: &M, body: &[Bytes]) -> Result<Split, FrameError> {
    let body_len = body.iter().map(|piece| piece.len() as u64).sum();
    if body_len > BODY_LIMIT {
        return Err(FrameError::BodyTooLong(body_len));
    }
    let header = encode(&Header::Start { id, body_len, message })?;
    let pieces = body.iter().filter(|piece| !piece.is_empty()).cloned().collect();
    Ok(Split { id, header: Some(header), pieces })
}

/// The frames of a message.
#[derive(Debug)]
pub struct Split {
    id: u32,
    /// The first frame's, until it is made.
    header: Option<Vec<u8>>,
    pieces: VecDeque<Bytes>,
}

impl Iterator for Split {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let header = match self.header.take() {
            Some(header) => header,
            None if self.pieces.is_empty() => return None,
            None => encode(&Header::<()>::Rest { id: self.id }).expect("a number and a word fit"),
        };
        let wanted: usize = self.pieces.iter().map(Bytes::len).sum();
        let mut left = wanted.min(FRAME_BODY_LIMIT);
        let start = body_start(header.len());
        let mut frame = BytesMut::with_capacity(start + left);
        frame.extend_from_slice(&(header.len() as u32).to_le_bytes());
        frame.extend_from_slice(&header);
        frame.resize(start, 0);
        while left > 0 {
            let piece = self.pieces.front_mut().expect("as many bytes as were counted");
            let taken = piece.split_to(piece.len().min(left));
            frame.extend_from_slice(&taken);
            left -= taken.len();
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        Some(frame.freeze())
    }
}

fn encode<M: Serialize>(header: &Header<M>) -> Result<Vec<u8>, FrameError> {
    let json = serde_json::to_vec(header).map_err(FrameError::Header)?;
    if json.len() > HEADER_LIMIT { Err(FrameError::HeaderLength(json.len())) } else { Ok(json) }
}

fn body_start(header_len: usize) -> usize {
    (4 + header_len).next_multiple_of(8)
}

/// Puts messages together from frames. The body of a message of one frame is not copied.
#[derive(Debug)]
pub struct Assembler<M> {
    open: HashMap<u32, Open<M>>,
    /// Bytes of body that are held for them.
    held: u64,
    /// How many these may be.
    limit: u64,
}

#[derive(Debug)]
struct Open<M> {
    message: M,
    body_len: u64,
    body: BytesMut,
}

/// Beyond this, memory for a body is taken as it arrives, not as it is announced.
const TRUSTED_CAPACITY: u64 = 64 << 20;

impl<M> Default for Assembler<M> {
    fn default() -> Assembler<M> {
        Assembler { open: HashMap::new(), held: 0, limit: OPEN_BYTES_LIMIT }
    }
}

impl<M: DeserializeOwned> Assembler<M> {
    /// Takes a frame, and gives a message when it is whole. After an error the connection is of
    /// no use any more.
    pub fn push(&mut self, frame: Bytes) -> Result<Option<(M, Bytes)>, FrameError> {
        let (header, body) = decode::<M>(frame)?;
        match header {
            Header::Start { id, body_len, message } => {
                if body_len > BODY_LIMIT {
                    return Err(FrameError::BodyTooLong(body_len));
                }
                if self.open.contains_key(&id) {
                    return Err(FrameError::Again(id));
                }
                if body.len() as u64 > body_len {
                    return Err(FrameError::BodyOverrun { id, announced: body_len });
                }
                if body.len() as u64 == body_len {
                    return Ok(Some((message, body)));
                }
                // Otherwise a hostile sender could open messages for nothing.
                if body.len() < FRAME_BODY_LIMIT {
                    return Err(FrameError::Stalled { id, sent: body.len() });
                }
                if self.open.len() >= OPEN_MESSAGES_LIMIT {
                    return Err(FrameError::TooManyOpen);
                }
                self.hold(body.len())?;
                let mut whole = BytesMut::with_capacity(body_len.min(TRUSTED_CAPACITY) as usize);
                whole.extend_from_slice(&body);
                self.open.insert(id, Open { message, body_len, body: whole });
                Ok(None)
            }
            Header::Rest { id } => {
                let open = self.open.get(&id).ok_or(FrameError::NotBegun(id))?;
                let left = open.body_len - open.body.len() as u64;
                if body.len() as u64 > left {
                    return Err(FrameError::BodyOverrun { id, announced: open.body_len });
                }
                self.hold(body.len())?;
                let open = self.open.get_mut(&id).ok_or(FrameError::NotBegun(id))?;
                open.body.extend_from_slice(&body);
                if (body.len() as u64) < left {
                    return Ok(None);
                }
                let whole = self.open.remove(&id).ok_or(FrameError::NotBegun(id))?;
                self.held -= whole.body_len;
                Ok(Some((whole.message, whole.body.freeze())))
            }
        }
    }

    /// Counts bytes that are about to be held.
    fn hold(&mut self, bytes: usize) -> Result<(), FrameError> {
        self.held += bytes as u64;
        if self.held > self.limit { Err(FrameError::TooManyBytes(self.limit)) } else { Ok(()) }
    }
}

fn decode<M: DeserializeOwned>(frame: Bytes) -> Result<(Header<M>, Bytes), FrameError> {
    if frame.len() > FRAME_LIMIT {
        return Err(FrameError::TooLong(frame.len()));
    }
    let length = frame.first_chunk::<4>().map_or(usize::MAX, |bytes| {
        usize::try_from(u32::from_le_bytes(*bytes)).unwrap_or(usize::MAX)
    });
    if length > HEADER_LIMIT || 4 + length > frame.len() {
        return Err(FrameError::HeaderLength(length));
    }
    let header = serde_json::from_slice(&frame[4..4 + length]).map_err(FrameError::Header)?;
    let body = frame.slice(body_start(length).min(frame.len())..);
    if body.len() > FRAME_BODY_LIMIT {
        return Err(FrameError::FrameBodyTooLong(body.len()));
    }
    Ok((header, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToLane;

    /// The frames of a message of three.
    fn frames(id: u32) -> Vec<Bytes> {
        let body = [Bytes::from(vec![0; 2 * FRAME_BODY_LIMIT + 8])];
        split(id, &ToLane::Ping { nonce: 0 }, &body).unwrap().collect()
    }

    fn assembler(frames: usize) -> Assembler<ToLane> {
        let limit = (frames * FRAME_BODY_LIMIT) as u64;
        Assembler { limit, ..Assembler::default() }
    }

    #[test]
    fn messages_under_way_hold_only_so_many_bytes_together() {
        let mut assembler = assembler(3);
        for frame in frames(1).into_iter().take(2).chain(frames(2).into_iter().take(1)) {
            assert!(assembler.push(frame).unwrap().is_none());
        }
        let further = frames(2).swap_remove(1);
        assert!(matches!(assembler.push(further), Err(FrameError::TooManyBytes(_))));
        assert!(matches!(
            assembler.push(frames(3).swap_remove(0)),
            Err(FrameError::TooManyBytes(_))
        ));
    }

    #[test]
    fn a_message_that_is_whole_makes_room() {
        let mut assembler = assembler(3);
        for id in 0..3 {
            let messages =
                frames(id).into_iter().filter_map(|frame| assembler.push(frame).unwrap());
            assert_eq!(messages.count(), 1);
            assert_eq!(assembler.held, 0);
        }
    }
}
