//! Splitting and putting together, for bodies of every size, in any mixture, and for bytes that
//! nobody meant as a frame.
#![allow(clippy::unwrap_used, reason = "a test that cannot split fails")]

use bytes::Bytes;
use holdfast_wire::{Assembler, FRAME_LIMIT, Frame, FrameError, ToLane, split, split_within};
use proptest::prelude::*;

fn ping(nonce: u64) -> ToLane {
    ToLane::Ping { nonce }
}

fn patterned(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// Smaller frames than the largest, so that tests need no large bodies.
const FRAME_BYTES: usize = 300_000;

fn split_small(id: u32, body: &[Bytes]) -> holdfast_wire::Split {
    split_within(FRAME_BYTES, id, &ping(id.into()), body).unwrap()
}

/// Gives an assembler all of a frame.
fn push(
    assembler: &mut Assembler<ToLane>,
    frame: Frame,
) -> Result<Option<(ToLane, Bytes)>, FrameError> {
    let mut message = None;
    for bytes in frame {
        assert!(message.is_none(), "a message was whole before its frame was");
        message = assembler.push(bytes)?;
    }
    Ok(message)
}

#[test]
fn a_small_body_travels_behind_its_header_and_is_not_copied() {
    let frame = split(1, &ping(1), &[patterned(1000)]).unwrap().next().unwrap();
    assert_eq!(frame.apart, None);
    let inside = frame.head.as_ptr_range();
    let (_, body) = push(&mut Assembler::default(), frame).unwrap().unwrap();
    assert!(inside.contains(&body.as_ptr()));
}

#[test]
fn a_large_body_travels_apart_and_is_not_copied_on_either_side() {
    let sent = patterned(1 << 20);
    let frames: Vec<Frame> = split(1, &ping(1), std::slice::from_ref(&sent)).unwrap().collect();
    let [frame] = frames.as_slice() else { panic!("{} frames", frames.len()) };
    let (_, body) = push(&mut Assembler::default(), frame.clone()).unwrap().unwrap();
    assert_eq!((body.as_ptr(), body.len()), (sent.as_ptr(), sent.len()));
}

#[test]
fn mixed_messages_come_apart_again() {
    let long = patterned(FRAME_BYTES * 2 + 5);
    let other = patterned(FRAME_BYTES + 1);
    let mut first = split_small(1, std::slice::from_ref(&long));
    let mut second = split_small(2, std::slice::from_ref(&other));
    let mut third = split_small(3, &[]);
    let mut assembler = Assembler::default();
    let mut next =
        |split: &mut holdfast_wire::Split| push(&mut assembler, split.next().unwrap()).unwrap();
    assert_eq!(next(&mut first), None);
    assert_eq!(next(&mut second), None);
    assert_eq!(next(&mut third).unwrap().0, ping(3));
    assert_eq!(next(&mut first), None);
    assert_eq!(next(&mut second), Some((ping(2), other)));
    assert_eq!(next(&mut first), Some((ping(1), long)));
    assert!(first.next().is_none() && second.next().is_none() && third.next().is_none());
}

#[test]
fn nothing_comes_between_a_header_and_its_bytes() {
    let frame = split(1, &ping(1), &[patterned(1 << 20)]).unwrap().next().unwrap();
    let other = split(2, &ping(2), &[]).unwrap().next().unwrap();
    let mut assembler = Assembler::<ToLane>::default();
    assert!(assembler.push(frame.head).unwrap().is_none());
    assert!(matches!(assembler.push(other.head), Err(FrameError::Apart { .. })));
}

#[test]
fn a_message_cannot_begin_twice() {
    let frame = split_small(1, &[patterned(FRAME_BYTES + 1)]).next().unwrap();
    let mut assembler = Assembler::default();
    push(&mut assembler, frame.clone()).unwrap();
    assert!(matches!(push(&mut assembler, frame), Err(FrameError::Again(1))));
}

#[test]
fn only_so_many_messages_may_be_open() {
    let body = [patterned(FRAME_BYTES + 1)];
    let mut assembler = Assembler::default();
    let refused =
        (0..1000).find_map(|id| push(&mut assembler, split_small(id, &body).next().unwrap()).err());
    assert!(matches!(refused, Some(FrameError::TooManyOpen)));
}

#[test]
fn a_frame_over_the_limit_is_refused() {
    let frame = Bytes::from(vec![0; FRAME_LIMIT + 1]);
    let refused = Assembler::<ToLane>::default().push(frame);
    assert!(matches!(refused, Err(FrameError::TooLong(_))));
}

proptest! {
    #[test]
    fn what_is_split_comes_together(
        lengths in prop::collection::vec(prop_oneof![0usize..100, 50_000usize..900_000], 0..6),
        frame_bytes in 0usize..700_000,
    ) {
        let pieces: Vec<Bytes> = lengths.iter().map(|&length| patterned(length)).collect();
        let mut assembler = Assembler::default();
        let mut received = None;
        for frame in split_within(frame_bytes, 9, &ping(1), &pieces).unwrap() {
            prop_assert!(frame.byte_len() <= FRAME_LIMIT);
            prop_assert!(received.is_none());
            received = push(&mut assembler, frame).unwrap();
        }
        prop_assert_eq!(received, Some((ping(1), Bytes::from(pieces.concat()))));
    }

    #[test]
    fn no_bytes_make_it_panic(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
        let mut assembler = Assembler::<ToLane>::default();
        for frame in frames {
            let _ = assembler.push(frame.into());
        }
    }

    #[test]
    fn no_change_of_a_frame_makes_it_panic(at in 0usize..200, to in any::<u8>(), cut in 0usize..300) {
        let frame = split(1, &ToLane::Get { request: 1, tensor: "t".into(), window: None }, &[patterned(100)])
            .unwrap().next().unwrap();
        let mut bytes = frame.head.to_vec();
        let length = bytes.len();
        bytes[at % length] = to;
        bytes.truncate(length.saturating_sub(cut % length));
        let _ = Assembler::<ToLane>::default().push(bytes.into());
    }
}
