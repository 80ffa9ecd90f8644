//! Where an assembler is.

use crate::cuda::jit::refused;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tessera_diag::Diagnostic;

/// NVIDIA's assembler for PTX: a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    pub path: PathBuf,
    /// Of CUDA: 13040 for 13.4.
    pub version: u32,
    /// As it names itself: `V13.4.92`.
    pub build: String,
}

/// Below a folder of Python packages: the toolkit's wheels for CUDA 13 and 12, and Triton's own.
const IN_PACKAGES: [&str; 3] =
    ["nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "triton/backends/nvidia/bin"];

impl Ptxas {
    /// The one at `path`, if that is said; else the first in the folders of Python packages
    /// (`site-packages`), then on the search path for programs.
    pub fn find(path: Option<&Path>, site_packages: &[PathBuf]) -> Result<Ptxas, Diagnostic> {
        if let Some(path) = path {
            return Self::at(path).map_err(|why| {
                let shown = path.display();
                refused(format!("the assembler {shown} cannot be used: {why}"))
            });
        }
        let name = format!("ptxas{}", std::env::consts::EXE_SUFFIX);
        let inside = |folder: &PathBuf| IN_PACKAGES.map(|sub| folder.join(sub).join(&name));
        let mut reasons = Vec::new();
        for candidate in site_packages.iter().flat_map(inside).filter(|path| path.is_file()) {
            match Self::at(&candidate) {
                Ok(found) => return Ok(found),
                Err(why) => reasons.push(format!("{} cannot be used: {why}", candidate.display())),
            }
        }
        // A name without a folder: the system looks for it.
        Self::at(Path::new(&name)).map_err(|why| {
            let help = "install it: `pip install nvidia-cuda-nvcc`";
            let mut none = refused("no assembler for PTX was found (ptxas)").help(help);
            reasons.push(format!("on the search path: {why}"));
            none.notes = reasons;
            none
        })
    }

    fn at(path: &Path) -> Result<Ptxas, String> {
        let output = Command::new(path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| match error.kind() {
            ErrorKind::NotFound => "there is no such file".to_string(),
            ErrorKind::PermissionDenied => {
                "it may not be run; `chmod +x` makes it a program".to_string()
            }
            _ => error.to_string(),
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (version, build) = version(&text).ok_or("it does not name a version of CUDA")?;
        Ok(Ptxas { path: path.to_path_buf(), version, build })
    }

    /// The newest PTX that it takes.
    pub fn ptx_isa(&self) -> Option<(u32, u32)> {
        crate::cuda::ptx_isa(self.version)
    }

    /// The command, for people.
    pub(super) fn shown(&self, arguments: &[OsString]) -> String {
        let words = std::iter::once(self.path.as_os_str()).chain(arguments.iter().map(|a| &**a));
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

/// From `Cuda compilation tools, release 13.4, V13.4.92`.
fn version(text: &str) -> Option<(u32, String)> {
    let (_, rest) = text.split_once("release ")?;
    let (release, rest) = rest.split_once(',')?;
    let (major, minor) = release.split_once('.')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    let build = rest.split_whitespace().next().unwrap_or(release);
    Some((major.checked_mul(1000)?.checked_add(minor.checked_mul(10)?)?, build.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_its_own_words() {
        let text = "ptxas: NVIDIA (R) Ptx optimizing assembler\n\
            Cuda compilation tools, release 13.4, V13.4.92\nBuild cuda_13.4.r13.4/compiler\n";
        assert_eq!(version(text), Some((13_040, "V13.4.92".into())));
        assert_eq!(version("release x.y, V1"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn what_is_said_and_is_not_there_is_not_replaced_by_another() {
        let error = Ptxas::find(Some(Path::new("no/such/ptxas")), &[]).unwrap_err();
        assert_eq!(error.code, tessera_diag::Code::E_TARGET_CODEGEN);
        assert!(error.message.contains("no/such/ptxas"), "{}", error.message);
    }
}
