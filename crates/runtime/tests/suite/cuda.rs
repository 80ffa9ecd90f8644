//! The driver as a machine without a device sees it; with one, the same holds.

use tessera_diag::Code;
use tessera_runtime::cuda::{self, Absent, Device};

#[test]
fn what_is_missing_is_said_in_a_sentence_and_nothing_panics() {
    match cuda::present() {
        Ok(present) => {
            assert!(present.devices > 0);
            assert_eq!(Device::get(present.devices).unwrap_err().code(), Code::E_DRIVER);
        }
        Err(absent) => {
            assert!(absent.to_string().contains(' '));
            let error = Device::get(0).unwrap_err();
            assert_eq!(error.code(), Code::E_DRIVER);
            assert_eq!(error.diagnostic().message, absent.to_string());
        }
    }
    assert_eq!(cuda::present(), cuda::present());
    let here = 0_u64;
    assert_eq!(cuda::pointer_device(&raw const here as u64), None);
}

#[test]
fn many_threads_may_ask_concurrently() {
    let first = cuda::present();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(cuda::present(), first));
        }
    });
}

/// A child of a process that has used the driver gets an error; another child asks the driver
/// itself.
#[cfg(unix)]
#[test]
fn a_forked_child_is_answered() {
    let expected = cuda::present().map_or_else(|absent| absent, |_| Absent::Forked);
    // SAFETY: the child does what a child of a process with threads may: it asks, and ends without
    // running anything of the parent's. It is ended if it hangs.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            tessera_support::forked();
            let right = cuda::present() == Err(expected);
            libc::_exit(if right { 0 } else { 1 });
        }
        child
    };
    let mut status = -1;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}
