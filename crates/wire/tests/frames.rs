//! Splitting and putting together, for bodies of every size, in any mixture, and for bytes that
//! nobody meant as a frame.
#![allow(clippy::unwrap_used, reason = "a test that cannot split fails")]

use bytes::Bytes;
use holdfast_wire::{Assembler, FRAME_BODY_LIMIT, FRAME_LIMIT, FrameError, ToLane, split};
use proptest::prelude::*;

fn ping(nonce: u64) -> ToLane {
    ToLane::Ping { nonce }
}

fn patterned(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_body_of_one_frame_is_not_copied() {
    let frame = split(1, &ping(1), &[patterned(1000)]).unwrap().next().unwrap();
    let inside = frame.as_ptr_range();
    let (_, body) = Assembler::<ToLane>::default().push(frame).unwrap().unwrap();
    assert!(inside.contains(&body.as_ptr()));
}

#[test]
fn mixed_messages_come_apart_again() {
    let long = patterned(FRAME_BODY_LIMIT * 2 + 5);
    let other = patterned(FRAME_BODY_LIMIT + 1);
    let mut first = split(1, &ping(1), std::slice::from_ref(&long)).unwrap();
    let mut second = split(2, &ping(2), std::slice::from_ref(&other)).unwrap();
    let mut third = split(3, &ping(3), &[]).unwrap();
    let order = [&mut first, &mut second].map(|split| split.next().unwrap());
    let mut assembler = Assembler::<ToLane>::default();
    for frame in order {
        assert!(assembler.push(frame).unwrap().is_none());
    }
    assert_eq!(assembler.push(third.next().unwrap()).unwrap().unwrap().0, ping(3));
    assert!(assembler.push(first.next().unwrap()).unwrap().is_none());
    assert_eq!(assembler.push(second.next().unwrap()).unwrap().unwrap(), (ping(2), other));
    assert_eq!(assembler.push(first.next().unwrap()).unwrap().unwrap(), (ping(1), long));
    assert!(first.next().is_none() && second.next().is_none() && third.next().is_none());
}

#[test]
fn a_message_cannot_begin_twice() {
    let body = [patterned(FRAME_BODY_LIMIT + 1)];
    let frame = split(1, &ping(1), &body).unwrap().next().unwrap();
    let mut assembler = Assembler::<ToLane>::default();
    assembler.push(frame.clone()).unwrap();
    assert!(matches!(assembler.push(frame), Err(FrameError::Again(1))));
}

#[test]
fn only_so_many_messages_may_be_open() {
    let body = [patterned(FRAME_BODY_LIMIT + 1)];
    let mut assembler = Assembler::<ToLane>::default();
    let refused = (0..1000)
        .find_map(|id| assembler.push(split(id, &ping(0), &body).unwrap().next().unwrap()).err());
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
    fn what_is_split_comes_together(lengths in prop::collection::vec(0usize..3_000_000, 0..5)) {
        let pieces: Vec<Bytes> = lengths.iter().map(|&length| patterned(length)).collect();
        let mut assembler = Assembler::<ToLane>::default();
        let mut received = None;
        for frame in split(9, &ping(1), &pieces).unwrap() {
            prop_assert!(frame.len() <= FRAME_LIMIT);
            prop_assert!(received.is_none());
            received = assembler.push(frame).unwrap();
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
        let frame = split(1, &ToLane::Get { request: 1, tensor: "t".into() }, &[patterned(100)])
            .unwrap().next().unwrap();
        let mut bytes = frame.to_vec();
        let length = bytes.len();
        bytes[at % length] = to;
        bytes.truncate(length.saturating_sub(cut % length));
        let _ = Assembler::<ToLane>::default().push(bytes.into());
    }
}
