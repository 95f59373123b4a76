//! Which class an error is of, wherever it happened.

use holdfast_devices::ErrorKind;
use holdfast_pool::RunError;
use holdfast_server::ClientError;

/// The class, by the names that the pool's own figures have.
pub(super) fn class(error: &anyhow::Error) -> &'static str {
    let here = error.downcast_ref::<RunError>().map(RunError::class);
    let there = error.downcast_ref::<ClientError>().map(|error| match error {
        ClientError::Refused { status, message } => refused(status.as_u16(), message),
        ClientError::Connect { .. } | ClientError::Http(_) | ClientError::Answer(_) => "connection",
    });
    here.or(there).unwrap_or("other")
}

/// A server says the class by its status, and the kind of a device's error by how it begins.
fn refused(status: u16, message: &str) -> &'static str {
    match status {
        422 => {
            let is_it = |kind: &ErrorKind| message.starts_with(&format!("{kind}: "));
            ErrorKind::ALL.into_iter().find(is_it).unwrap_or(ErrorKind::Device).name()
        }
        429 => "full",
        503 if message.starts_with("it was running on") => "failed",
        503 => "no_device",
        504 => "timeout",
        _ => "connection",
    }
}

#[cfg(test)]
mod tests {
    use holdfast_devices::DeviceError;

    use super::*;

    #[test]
    fn a_device_error_has_the_same_class_here_and_through_a_server() {
        for kind in ErrorKind::ALL {
            let error = RunError::from(DeviceError::new(kind, "it was so"));
            let there = refused(422, &error.to_string());
            assert_eq!(class(&error.into()), there);
        }
        let failed = RunError::Failed(vec![]);
        assert_eq!(refused(503, &failed.to_string()), class(&failed.into()));
        let none = RunError::NoDevice(vec![]);
        assert_eq!(refused(503, &none.to_string()), class(&none.into()));
    }

    #[test]
    fn what_is_no_error_of_a_run_is_told_apart() {
        assert_eq!(class(&anyhow::anyhow!("something else")), "other");
        assert_eq!(refused(401, "Control needs the token"), "connection");
    }
}
