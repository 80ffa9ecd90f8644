//! What is done to other processes: forked ones, and one whose context is lost.

use crate::{Checked, Rig, add, ensure, rig, words};
use tessera_diag::{Code, Loc};
use tessera_runtime::cuda::*;

#[cfg(not(unix))]
pub fn fork(_: &Rig) -> Checked {
    Ok("skipped: this system does not fork".into())
}

/// In a child nothing of the device works, nothing hangs, and the error says what to do.
#[cfg(unix)]
pub fn fork(rig: &Rig) -> Checked {
    let nothing = rig.module.function("nothing")?;
    // SAFETY: the child asks, and ends without running anything of the parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that hangs is ended.
        unsafe { libc::alarm(30) };
        tessera_support::forked();
        let absent = present() == Err(Absent::Forked);
        let typed = Device::get(0).is_err_and(|e| e.to_string().contains("spawn"));
        // SAFETY: the kernel looks at nothing.
        let launch = unsafe {
            nothing.launch(&LaunchShape::new([1, 1, 1], 32), &words(&[0]), &[], rig.stream.handle())
        };
        let wrong = [!absent, !typed, launch.is_ok()];
        let bits = wrong.iter().enumerate().map(|(i, &w)| i32::from(w) << i).sum();
        // SAFETY: ends the child immediately.
        unsafe { libc::_exit(bits) };
    }
    let mut status = -1;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    ensure(libc::WIFEXITED(status), format!("the child was ended: {status:#x}"))?;
    let wrong = libc::WEXITSTATUS(status);
    ensure(wrong == 0, format!("bits {wrong:#b} (absent, typed, launch)"))?;
    ensure(add(rig, &rig.stream, 1000, 9)? == 0, "the parent is disturbed")?;
    Ok("a child gets an error that names spawn, the parent goes on".into())
}

pub fn illegal_address(_: &Rig) -> Checked {
    let output = std::process::Command::new(std::env::current_exe()?).arg("stray").output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().replace('\n', " / ");
    ensure(output.status.success(), format!("{} {said}", output.status))?;
    Ok(said)
}

/// Its own process: the context is lost afterwards.
pub fn stray() -> i32 {
    let run = || -> Result<(), CudaError> {
        let rig = rig()?;
        let stray = rig.module.function("stray")?;
        let shape = LaunchShape::new([1, 1, 1], 1);
        // SAFETY: this is what is tried; the process ends after it.
        unsafe { stray.launch(&shape, &words(&[1 << 50]), &[], rig.stream.handle()) }?;
        rig.stream.synchronize()
    };
    match run() {
        Ok(()) => {
            println!("a stray write went unnoticed");
            1
        }
        Err(error) => {
            let right = error.sticky && error.code() == Code::E_ILLEGAL_ADDRESS;
            let error = tessera_target::device::DeviceError::from(error);
            println!("{}", error.at_launch("stray", &Loc::unknown(), "address: 2^50"));
            i32::from(!right)
        }
    }
}
