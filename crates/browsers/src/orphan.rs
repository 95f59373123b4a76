//! Processes that must not outlive who started them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

/// Has the kernel send a signal to the program when whoever starts it dies. The kernel ties this to
/// the thread that starts the program, so that thread has to live as long as the program should.
#[cfg(target_os = "linux")]
pub(crate) fn die_with_this_thread(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // The parent may have died before the call above.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()))
        }
    };
    #[expect(unsafe_code, reason = "runs between fork and exec")]
    // SAFETY: two system calls and no allocation, which is allowed between fork and exec.
    unsafe {
        command.pre_exec(before_exec);
    }
}

/// Elsewhere the owner of a killed guard ends the browser's process group.
#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with_this_thread(_command: &mut Command, _signal: Signal) {}
