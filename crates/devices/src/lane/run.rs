//! Running a program on a lane.

use std::time::{Duration, Instant};

use holdfast_wire::{FromLane, ToLane};

use super::Lane;
use super::convert::{self, Encoded};
use super::effect::Effect;
use super::state::Answer;
use super::timeouts::Slowest;
use super::underway::Underway;
use crate::error::DeviceError;
use crate::program::{Input, Outcome, Program, TensorId};
use crate::segment::SegmentId;

impl Lane {
    pub(super) async fn run_once(
        &self,
        program: &Program,
        arrived: Instant,
        underway: &Underway<'_>,
    ) -> Result<Outcome, DeviceError> {
        let needs = Needs::of(program);
        needs.segments.iter().try_for_each(|id| self.known_segment(*id))?;
        needs.tensors.iter().try_for_each(|id| self.known_tensor(id))?;
        let (encoded, patience) = {
            let state = self.state();
            let encoded = convert::encode_program(program, &state.segments)?;
            let timeouts = &self.shared.options.timeouts;
            let segments = needs.segments.iter().filter_map(|id| state.segments.get(id));
            let each = segments.map(|segment| {
                timeouts.for_run(segment.kind, encoded.input_bytes, segment.slowest)
            });
            let patience = each.fold(Duration::ZERO, Duration::saturating_add);
            (encoded, patience)
        };
        let deadline = program.deadline.map(|deadline| deadline.saturating_sub(arrived.elapsed()));
        let Encoded { steps, body, input_bytes, returns, keeps } = encoded;
        let message = |request| ToLane::Run { request, deadline_ms: 0, steps };
        let segments = needs.segments.clone();
        let effect = Effect::Runs { segments: needs.segments, uses: needs.tensors, keeps };
        let asked = Instant::now();
        let answer = self.ask_run(underway, message, body, patience, deadline, effect).await?;

        let Answer { message, body, parts: mut sent, kept, .. } = answer;
        let FromLane::Outcome { outputs, queued_ms, steps, .. } = message else {
            return Err(self.broke_protocol("`run` answered by something else".to_owned()));
        };
        sent.push((outputs, body));
        let broken = |lie| self.broke_protocol(lie);
        let outputs = convert::read_outputs(&returns, &sent).map_err(broken)?;
        let steps = convert::read_steps(&steps, program.steps.len()).map_err(broken)?;
        let queued = convert::milliseconds(queued_ms).map_err(broken)?;
        let mut state = self.state();
        for (id, timing) in segments.iter().zip(&steps) {
            // A lane's clock is its own; that it took longer than it did is not believed.
            let took = timing.run.min(asked.elapsed());
            if let Some(segment) = state.segments.get_mut(id)
                && segment.slowest.is_none_or(|slowest| slowest.took < took)
            {
                segment.slowest = Some(Slowest { took, input_bytes });
            }
        }
        drop(state);
        Ok(Outcome { outputs, kept, steps, queued, device: self.shared.info() })
    }
}

/// What a program needs on the lane: the segment of each step, and kept tensors.
struct Needs {
    segments: Vec<SegmentId>,
    tensors: Vec<TensorId>,
}

impl Needs {
    fn of(program: &Program) -> Needs {
        let inputs = program.steps.iter().flat_map(|step| &step.inputs);
        let kept = inputs.filter_map(|(_, input)| match input {
            Input::Kept(id) => Some(id.clone()),
            Input::Inline(_) | Input::Step { .. } => None,
        });
        Needs {
            segments: program.steps.iter().map(|step| step.segment).collect(),
            tensors: kept.collect(),
        }
    }
}
