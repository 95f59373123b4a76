//! What a run that failed says, seen together with what became of its device.
//!
//! The kind of an error alone does not tell: a device that lost its GPU and one that has no such
//! operator both say that they failed. What the scheduler knows of the device since tells them apart.

use holdfast_devices::{DeviceError, ErrorKind};
use holdfast_wire::Backend;

use super::member::{Health, Member};
use super::state::State;
use super::turn::Granted;
use crate::choice::Choice;

/// A run that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: DeviceError,
    pub(crate) fault: Fault,
}

/// Whose fault it was, and so what can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The caller's: it would be wrong everywhere, is not wanted any more, or is out of time.
    Caller,
    /// The device is there with all that it had, and cannot do this.
    Refused,
    /// It takes nothing more for the moment.
    Busy,
    /// What the request needs was lost under another one, before it had begun.
    NotBegun,
    /// The device, or what it had loaded, was lost under it.
    Lost,
}

impl Fault {
    /// What a load says that was not refused.
    pub(super) fn of_load(kind: ErrorKind) -> Fault {
        match kind {
            ErrorKind::Busy => Fault::Busy,
            ErrorKind::StateLost => Fault::NotBegun,
            _ => Fault::Lost,
        }
    }
}

impl Failed {
    /// The same for another one of those who ran together.
    pub(crate) fn for_another(&self) -> Failed {
        let message = crate::pool::explain(&self.error);
        Failed { error: DeviceError::new(self.error.kind(), message), fault: self.fault }
    }

    /// Whether a request that ran with others was refused for one of them, it may be itself.
    pub(super) fn is_about_one(&self) -> bool {
        matches!(self.fault, Fault::Caller | Fault::Refused)
    }
}

impl State {
    /// What an error of a device says. What it means is gone counts as gone from then on.
    pub(super) fn fault(&mut self, granted: &Granted, kind: ErrorKind) -> Fault {
        match (self.members.get_mut(&granted.member), kind) {
            (_, ErrorKind::Caller | ErrorKind::Cancelled) => Fault::Caller,
            (Some(member), kind) => member.fault(granted, kind),
            (None, _) => Fault::Lost,
        }
    }
}

impl Member {
    fn fault(&mut self, granted: &Granted, kind: ErrorKind) -> Fault {
        // A loss is told before the error, but it may not have been heard here.
        self.refresh();
        let is_there = self.health != Health::Gone;
        let has_all = is_there
            && self.loaded.get(&granted.model.id).is_some_and(|held| held.at == granted.loaded_at);
        let fault = match kind {
            ErrorKind::Caller | ErrorKind::Cancelled => Fault::Caller,
            ErrorKind::Busy => Fault::Busy,
            ErrorKind::Device if has_all || self.options.steady => Fault::Refused,
            ErrorKind::Memory if is_there => Fault::Refused,
            ErrorKind::StateLost if is_there && !has_all => Fault::NotBegun,
            ErrorKind::Device
            | ErrorKind::Memory
            | ErrorKind::StateLost
            | ErrorKind::Timeout
            | ErrorKind::Protocol => Fault::Lost,
        };
        match (kind, self.options.choice) {
            // The device does not say what is gone.
            (ErrorKind::StateLost, _) if has_all => {
                self.loaded.remove(&granted.model.id);
                self.cache.clear();
            }
            // A session that failed on a GPU is given up there.
            (
                ErrorKind::Device | ErrorKind::Memory,
                Choice::Lane(Backend::Webgpu | Backend::Webnn),
            ) if has_all => {
                self.loaded.remove(&granted.model.id);
            }
            _ => {}
        }
        fault
    }
}
