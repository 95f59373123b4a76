//! What waits to be sent to a lane: short messages go ahead of the frames of long ones.

use std::collections::VecDeque;

use bytes::Bytes;
use holdfast_wire::{Frame, FrameError, Split, ToLane, split_within};

/// What goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Greetings, pings, cancels.
    Control,
    /// What fits one frame.
    Short,
    /// The rest: its frames leave room for others between them.
    Long,
}

/// Frames in the order in which they go out.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Bytes of a body that one frame carries.
    frame_bytes: usize,
    queues: [VecDeque<Letter>; 3],
    /// Requests whose answers arrived; told together.
    acks: Vec<u64>,
    next_id: u32,
}

/// A message on its way out.
#[derive(Debug)]
struct Letter {
    /// The request that it is, if it is one.
    request: Option<u64>,
    frames: Split,
    /// Whether some of its frames went out.
    begun: bool,
}

impl Outbox {
    pub(crate) fn new(frame_bytes: usize) -> Outbox {
        Outbox { frame_bytes, queues: Default::default(), acks: Vec::new(), next_id: 0 }
    }

    /// Adds a message that does not wait behind any request.
    pub(crate) fn push_control(&mut self, message: &ToLane) -> Result<(), FrameError> {
        self.push(Priority::Control, None, message, &[])
    }

    /// Adds a request, which has this number.
    pub(crate) fn push_request(
        &mut self,
        request: u64,
        message: &ToLane,
        body: &[Bytes],
    ) -> Result<(), FrameError> {
        let body_len: usize = body.iter().map(Bytes::len).sum();
        // What lets something go must not overtake a long request that uses it.
        let short = body_len <= self.frame_bytes && !lets_go(message);
        let priority = if short { Priority::Short } else { Priority::Long };
        self.push(priority, Some(request), message, body)
    }

    /// Takes a request back. Whether none of it had gone out, so that the lane will never hear of it.
    pub(crate) fn take_back(&mut self, request: u64) -> bool {
        for priority in [Priority::Short, Priority::Long] {
            let queue = &mut self.queues[priority as usize];
            let Some(at) = queue.iter().position(|letter| letter.request == Some(request)) else {
                continue;
            };
            if !queue[at].begun {
                queue.remove(at);
                return true;
            }
            // The lane ignores what it does not know, so it has to know the request first.
            if let Ok(cancel) = self.letter(None, &ToLane::Cancel { request }, &[]) {
                self.queues[priority as usize].insert(at + 1, cancel);
            }
            return false;
        }
        // A number always fits.
        let _ = self.push_control(&ToLane::Cancel { request });
        false
    }

    /// Adds an acknowledgement.
    pub(crate) fn acknowledge(&mut self, request: u64) {
        self.acks.push(request);
    }

    /// The next frame to send.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        if !self.acks.is_empty() && self.queues[0].is_empty() {
            let requests = std::mem::take(&mut self.acks);
            // Numbers always fit.
            let _ = self.push_control(&ToLane::Ack { requests });
        }
        for queue in &mut self.queues {
            while let Some(letter) = queue.front_mut() {
                match letter.frames.next() {
                    Some(frame) => {
                        letter.begun = true;
                        return Some(frame);
                    }
                    None => drop(queue.pop_front()),
                }
            }
        }
        None
    }

    fn push(
        &mut self,
        priority: Priority,
        request: Option<u64>,
        message: &ToLane,
        body: &[Bytes],
    ) -> Result<(), FrameError> {
        let letter = self.letter(request, message, body)?;
        self.queues[priority as usize].push_back(letter);
        Ok(())
    }

    fn letter(
        &mut self,
        request: Option<u64>,
        message: &ToLane,
        body: &[Bytes],
    ) -> Result<Letter, FrameError> {
        self.next_id = self.next_id.wrapping_add(1);
        let frames = split_within(self.frame_bytes, self.next_id, message, body)?;
        Ok(Letter { request, frames, begun: false })
    }
}

/// Whether a request lets something go.
pub(crate) fn lets_go(message: &ToLane) -> bool {
    matches!(message, ToLane::Unload { .. } | ToLane::Drop { .. })
}

#[cfg(test)]
mod tests {
    use holdfast_wire::Assembler;

    use super::*;

    const FRAME_BYTES: usize = 300_000;

    fn get(request: u64) -> ToLane {
        ToLane::Get { request, tensor: "t".into(), window: None }
    }

    /// The messages in the order in which they are whole at the other end.
    fn arrivals(outbox: &mut Outbox, assembler: &mut Assembler<ToLane>) -> Vec<ToLane> {
        let frames = std::iter::from_fn(|| outbox.next_frame());
        frames
            .flatten()
            .filter_map(|bytes| assembler.push(bytes).unwrap())
            .map(|(m, _)| m)
            .collect()
    }

    #[test]
    fn control_goes_before_requests_and_those_stay_in_order() {
        let mut outbox = Outbox::new(FRAME_BYTES);
        outbox.push_request(1, &get(1), &[]).unwrap();
        outbox.push_request(2, &get(2), &[]).unwrap();
        outbox.push_control(&ToLane::Ping { nonce: 1 }).unwrap();
        let arrived = arrivals(&mut outbox, &mut Assembler::default());
        assert_eq!(arrived, [ToLane::Ping { nonce: 1 }, get(1), get(2)]);
    }

    #[test]
    fn a_short_request_overtakes_a_long_one_under_way() {
        let mut outbox = Outbox::new(FRAME_BYTES);
        let mut assembler = Assembler::default();
        let long = Bytes::from(vec![0; FRAME_BYTES * 2]);
        outbox.push_request(1, &get(1), &[long]).unwrap();
        for bytes in outbox.next_frame().unwrap() {
            assert!(assembler.push(bytes).unwrap().is_none());
        }
        outbox.push_request(2, &get(2), &[]).unwrap();
        assert_eq!(arrivals(&mut outbox, &mut assembler), [get(2), get(1)]);
    }

    #[test]
    fn what_was_not_sent_is_taken_back_and_the_rest_cancelled_behind_it() {
        let mut outbox = Outbox::new(FRAME_BYTES);
        let mut assembler = Assembler::default();
        let long = || Bytes::from(vec![0; FRAME_BYTES * 2]);
        let cancel = |request| ToLane::Cancel { request };
        outbox.push_request(1, &get(1), &[]).unwrap();
        outbox.push_request(2, &get(2), &[long()]).unwrap();
        outbox.push_request(3, &get(3), &[long()]).unwrap();
        assert!(outbox.take_back(1) && outbox.take_back(3));
        for bytes in outbox.next_frame().unwrap() {
            assert!(assembler.push(bytes).unwrap().is_none());
        }
        // The lane has heard the beginning of it, and what was not in time is not its business.
        assert!(!outbox.take_back(2) && !outbox.take_back(1));
        assert_eq!(arrivals(&mut outbox, &mut assembler), [cancel(1), get(2), cancel(2)]);
    }

    #[test]
    fn acknowledgements_travel_together() {
        let mut outbox = Outbox::new(FRAME_BYTES);
        outbox.acknowledge(1);
        outbox.acknowledge(2);
        let arrived = arrivals(&mut outbox, &mut Assembler::default());
        assert_eq!(arrived, [ToLane::Ack { requests: vec![1, 2] }]);
    }
}
