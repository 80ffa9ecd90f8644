//! NVIDIA's assembler as a program, for code that is compiled where there is no device, and for its
//! report.

mod find;
mod folder;
mod report;

pub use find::Ptxas;
pub use report::{Report, Resources};

use super::error::CudaError;
use super::jit::{self, refused};
use folder::Folder;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tessera_diag::{Diagnostic, Diagnostics};
use tessera_target::Poll;

/// How code is assembled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssembleOptions {
    /// 0 to 4; the assembler's own choice is 3.
    pub optimisation: Option<u32>,
    pub max_registers: Option<u32>,
    /// Keeps which instruction came from which line, for profilers.
    pub line_info: bool,
    /// Passed on as they are.
    pub more: Vec<String>,
}

impl AssembleOptions {
    fn arguments(&self, arch: &str) -> Vec<OsString> {
        let mut out = vec!["-v".to_string(), format!("--gpu-name={arch}")];
        out.extend(self.optimisation.map(|level| format!("--opt-level={level}")));
        out.extend(self.max_registers.map(|registers| format!("--maxrregcount={registers}")));
        if self.line_info {
            out.push("--generate-line-info".into());
        }
        out.extend(self.more.iter().cloned());
        out.into_iter().map(Into::into).collect()
    }
}

/// Code for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    pub cubin: Vec<u8>,
    pub report: Report,
}

const PAUSE: Duration = Duration::from_millis(2);

impl Ptxas {
    /// Assembles PTX for an architecture, such as `sm_90a`. What is refused comes back with the
    /// assembler's words and the lines that they speak of.
    pub fn assemble(
        &self,
        ptx: &str,
        arch: &str,
        options: &AssembleOptions,
    ) -> Result<Assembled, Diagnostics> {
        let broken = |error: io::Error| {
            let shown = self.path.display();
            Diagnostics::from(refused(format!("the assembler {shown} could not be run: {error}")))
        };
        let folder = Folder::new().map_err(broken)?;
        let input = folder.path().join("kernel.ptx");
        let output = folder.path().join("kernel.cubin");
        fs::write(&input, ptx).map_err(broken)?;
        let mut arguments = options.arguments(arch);
        arguments.extend(["-o".into(), output.clone().into(), input.into()]);
        let log = folder.path().join("log");
        let status = self.run(&arguments, &log).map_err(broken)?;
        let Some(status) = status else {
            return Err(CudaError::interrupted().into());
        };
        let log = fs::read(&log).map_err(broken)?;
        let log = String::from_utf8_lossy(&log);
        let cubin = if status.success() { fs::read(&output).map_err(broken)? } else { Vec::new() };
        if cubin.is_empty() {
            return Err(self.explain(&arguments, status, &log, ptx).into());
        }
        Ok(Assembled { cubin, report: Report::parse(&log) })
    }

    /// Runs the assembler with its output in a log file. `None` where the host requested to stop.
    fn run(&self, arguments: &[OsString], log: &Path) -> io::Result<Option<ExitStatus>> {
        let words = File::create(log)?;
        let mut child = Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(words.try_clone()?)
            .stderr(words)
            .spawn()?;
        let mut poll = Poll::start();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if poll.is_interrupted() {
                end(&mut child);
                return Ok(None);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn explain(
        &self,
        arguments: &[OsString],
        status: ExitStatus,
        log: &str,
        ptx: &str,
    ) -> Diagnostic {
        // The figures of kernels that were assembled before the error help nobody.
        let is_news = |line: &&str| !line.starts_with("ptxas info") && !line.starts_with("    ");
        let log = log.lines().filter(is_news).collect::<Vec<_>>().join("\n");
        let mut refusal = refused("the assembler refused the code (ptxas)");
        refusal.notes = jit::notes(&log, ptx);
        refusal.notes.push(format!("it was run as: {}", self.shown(arguments)));
        refusal.notes.push(format!("it is of CUDA {}, and ended with {status}", self.build));
        refusal
    }
}

/// Nothing is to be done where it has ended by itself.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const ADD: &str = include_str!("../../../examples/cuda_smoke/kernels.ptx");

    /// The assembler of the environment beside the checkout or of the search path.
    fn ptxas() -> Option<Ptxas> {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
        let versions = fs::read_dir(top.join(".venv/lib")).into_iter().flatten().flatten();
        let packages: Vec<PathBuf> = versions.map(|v| v.path().join("site-packages")).collect();
        Ptxas::find(None, &packages).map_err(|none| println!("skipped: {}", none.render())).ok()
    }

    #[test]
    fn code_becomes_a_cubin_with_a_report() {
        let Some(ptxas) = ptxas() else { return };
        assert!(ptxas.ptx_isa() >= Some((8, 0)), "{ptxas:?}");
        let options = AssembleOptions { max_registers: Some(64), ..Default::default() };
        let done = ptxas.assemble(ADD, "sm_90", &options).unwrap();
        assert!(done.cubin.starts_with(b"\x7fELF"));
        assert!(super::super::image::whole(&done.cubin).is_ok());
        assert!(super::super::image::whole(&done.cubin[..done.cubin.len() - 1]).is_err());
        let add = done.report.of("add").unwrap();
        assert!(add.registers > 0 && add.registers <= 64 && add.spill_store_bytes == 0);
    }

    #[test]
    fn refused_code_comes_back_with_its_lines() {
        let Some(ptxas) = ptxas() else { return };
        let wrong = ADD.replace("add.f32", "addd.f32");
        let text = ptxas.assemble(&wrong, "sm_90", &Default::default()).unwrap_err().render();
        for part in ["error[E_TARGET_CODEGEN]", "addd", " | addd.f32", "it was run as: ", "-v"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let text = ptxas.assemble(ADD, "sm_1", &Default::default()).unwrap_err().render();
        assert!(text.contains("sm_1"), "{text}");
    }

    #[test]
    fn a_program_that_is_no_assembler_is_an_error() {
        let other = Ptxas { path: "/no/such/ptxas".into(), version: 13_000, build: "V13".into() };
        let error = other.assemble(ADD, "sm_90", &Default::default()).unwrap_err();
        assert!(error.render().contains("could not be run"));
    }
}
