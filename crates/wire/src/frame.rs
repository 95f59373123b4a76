//! Frames: how a message travels.
//!
//! A frame is a little-endian `u32` with the length of the header, the header in JSON, zeros up
//! to a multiple of 8, and bytes of the body. The first frame of a message has the message in
//! its header, the others only say to which message they belong. Many bytes travel *apart*: the
//! header says how many, and the next message of the WebSocket is these bytes and nothing else.
//! So neither side has to copy them to put them behind a header, or to take them from there.

use std::collections::{HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{
    BODY_LIMIT, FRAME_BODY_LIMIT, FRAME_LIMIT, HEADER_LIMIT, OPEN_BYTES_LIMIT, OPEN_MESSAGES_LIMIT,
};

/// The header of a frame.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Header<M> {
    /// The first frame of a message.
    Start {
        id: u32,
        body_len: u64,
        #[serde(default, skip_serializing_if = "is_none")]
        apart: usize,
        message: M,
    },
    /// A further one.
    Rest {
        id: u32,
        #[serde(default, skip_serializing_if = "is_none")]
        apart: usize,
    },
}

impl<M> Header<M> {
    /// How many bytes of the body come apart.
    fn apart(&self) -> usize {
        match self {
            Header::Start { apart, .. } | Header::Rest { apart, .. } => *apart,
        }
    }
}

fn is_none(byte_len: &usize) -> bool {
    *byte_len == 0
}

/// Fewer bytes than this are copied in less time than a message of the WebSocket takes.
const APART_FROM: usize = 256 << 10;

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
    #[error("a header announced {announced} bytes apart, and {sent} bytes came")]
    Apart { announced: usize, sent: usize },
    #[error("message {0} began twice")]
    Again(u32),
    #[error("a further frame of message {0}, which has not begun")]
    NotBegun(u32),
    #[error("{OPEN_MESSAGES_LIMIT} messages are under way in parts already")]
    TooManyOpen,
    #[error("messages under way in parts have more than {0} bytes together")]
    TooManyBytes(u64),
}

/// Splits a message into frames of the largest size. See [`split_within`].
pub fn split<M: Serialize>(id: u32, message: &M, body: &[Bytes]) -> Result<Split, FrameError> {
    split_within(FRAME_BODY_LIMIT, id, message, body)
}

/// Splits a message into frames with at most `frame_bytes` of the body each. They are made when
/// they are asked for, and large pieces of the body are not copied. `id` tells the message apart
/// from others under way on this connection.
pub fn split_within<M: Serialize>(
    frame_bytes: usize,
    id: u32,
    message: &M,
    body: &[Bytes],
) -> Result<Split, FrameError> {
    let body_len = body.iter().map(|piece| piece.len() as u64).sum();
    if body_len > BODY_LIMIT {
        return Err(FrameError::BodyTooLong(body_len));
    }
    let pieces = body.iter().filter(|piece| !piece.is_empty()).cloned().collect();
    let frame_bytes = frame_bytes.clamp(APART_FROM, FRAME_BODY_LIMIT);
    let mut split = Split { id, frame_bytes, pieces, first: None };
    let carried = split.carry();
    let header = Header::Start { id, body_len, apart: carried.apart_len(), message };
    split.first = Some(frame(&header, carried)?);
    Ok(split)
}

/// The frames of a message.
#[derive(Debug)]
pub struct Split {
    id: u32,
    frame_bytes: usize,
    pieces: VecDeque<Bytes>,
    first: Option<Frame>,
}

impl Iterator for Split {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.pieces.is_empty() {
            return None;
        }
        let carried = self.carry();
        let header = Header::<()>::Rest { id: self.id, apart: carried.apart_len() };
        Some(frame(&header, carried).expect("two numbers and a word fit"))
    }
}

impl Split {
    /// Takes the bytes that the next frame carries off the front of the body.
    fn carry(&mut self) -> Carried {
        let mut behind = Vec::new();
        let mut room = APART_FROM;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.len() >= APART_FROM && behind.is_empty() {
                let apart = piece.split_to(piece.len().min(self.frame_bytes));
                if piece.is_empty() {
                    self.pieces.pop_front();
                }
                return Carried::Apart(apart);
            }
            if piece.len() > room {
                break;
            }
            room -= piece.len();
            behind.extend(self.pieces.pop_front());
        }
        Carried::Behind(behind)
    }
}

/// Bytes of the body in one frame.
enum Carried {
    Apart(Bytes),
    Behind(Vec<Bytes>),
}

impl Carried {
    fn apart_len(&self) -> usize {
        match self {
            Carried::Apart(bytes) => bytes.len(),
            Carried::Behind(_) => 0,
        }
    }
}

/// A frame, as messages of a WebSocket between which no other may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header, and the bytes behind it.
    pub head: Bytes,
    /// The bytes that travel apart.
    pub apart: Option<Bytes>,
}

impl Frame {
    /// How many bytes it has.
    pub fn byte_len(&self) -> usize {
        self.head.len() + self.apart.as_ref().map_or(0, Bytes::len)
    }
}

impl IntoIterator for Frame {
    type Item = Bytes;
    type IntoIter = std::iter::Chain<std::iter::Once<Bytes>, std::option::IntoIter<Bytes>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.head).chain(self.apart)
    }
}

fn frame<M: Serialize>(header: &Header<M>, carried: Carried) -> Result<Frame, FrameError> {
    let header = encode(header)?;
    let (behind, apart) = match carried {
        Carried::Apart(bytes) => (Vec::new(), Some(bytes)),
        Carried::Behind(pieces) => (pieces, None),
    };
    let start = body_start(header.len());
    let behind_len: usize = behind.iter().map(Bytes::len).sum();
    let mut head = BytesMut::with_capacity(start + behind_len);
    head.extend_from_slice(&(header.len() as u32).to_le_bytes());
    head.extend_from_slice(&header);
    head.resize(start, 0);
    behind.iter().for_each(|piece| head.extend_from_slice(piece));
    Ok(Frame { head: head.freeze(), apart })
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
    /// The header whose bytes come apart, next.
    announced: Option<Header<M>>,
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
        Assembler { announced: None, open: HashMap::new(), held: 0, limit: OPEN_BYTES_LIMIT }
    }
}

impl<M: DeserializeOwned> Assembler<M> {
    /// Takes a message of the WebSocket, and gives one of ours when it is whole. After an error
    /// the connection is of no use any more.
    pub fn push(&mut self, bytes: Bytes) -> Result<Option<(M, Bytes)>, FrameError> {
        let (header, body) = match self.announced.take() {
            Some(header) => {
                check_apart(&header, bytes.len(), header.apart())?;
                (header, bytes)
            }
            None => {
                let (header, behind) = decode::<M>(bytes)?;
                if header.apart() > 0 {
                    check_apart(&header, behind.len(), 0)?;
                    self.announced = Some(header);
                    return Ok(None);
                }
                (header, behind)
            }
        };
        match header {
            Header::Start { id, body_len, message, .. } => {
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
                if self.open.len() >= OPEN_MESSAGES_LIMIT {
                    return Err(FrameError::TooManyOpen);
                }
                self.hold(body.len())?;
                let mut whole = BytesMut::with_capacity(body_len.min(TRUSTED_CAPACITY) as usize);
                whole.extend_from_slice(&body);
                self.open.insert(id, Open { message, body_len, body: whole });
                Ok(None)
            }
            Header::Rest { id, .. } => {
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

/// Whether as many bytes came as have to come now, of those that a header announced.
fn check_apart<M>(header: &Header<M>, sent: usize, due: usize) -> Result<(), FrameError> {
    let announced = header.apart();
    if announced > FRAME_BODY_LIMIT {
        return Err(FrameError::FrameBodyTooLong(announced));
    }
    if sent == due { Ok(()) } else { Err(FrameError::Apart { announced, sent }) }
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

    const FRAME_BYTES: usize = 300_000;

    /// What a WebSocket carries for a message of three frames, each in two.
    fn messages(id: u32) -> Vec<Bytes> {
        let body = [Bytes::from(vec![0; 2 * FRAME_BYTES + APART_FROM])];
        split_within(FRAME_BYTES, id, &ToLane::Ping { nonce: 0 }, &body)
            .unwrap()
            .flatten()
            .collect()
    }

    fn assembler(frames: usize) -> Assembler<ToLane> {
        let limit = (frames * FRAME_BYTES) as u64;
        Assembler { limit, ..Assembler::default() }
    }

    #[test]
    fn messages_under_way_hold_only_so_many_bytes_together() {
        let mut assembler = assembler(3);
        let mut other = messages(2).into_iter();
        for bytes in messages(1).into_iter().take(4).chain(other.by_ref().take(3)) {
            assert!(assembler.push(bytes).unwrap().is_none());
        }
        let further = assembler.push(other.next().unwrap());
        assert!(matches!(further, Err(FrameError::TooManyBytes(_))));
    }

    #[test]
    fn a_message_that_is_whole_makes_room() {
        let mut assembler = assembler(3);
        for id in 0..3 {
            let whole = messages(id).into_iter().filter_map(|bytes| assembler.push(bytes).unwrap());
            assert_eq!(whole.count(), 1);
            assert_eq!(assembler.held, 0);
        }
    }
}
