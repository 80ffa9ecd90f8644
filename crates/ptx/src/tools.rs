//! NVIDIA's assembler and disassembler, where they are installed. Tests run them on every kernel;
//! compilation and launches never do.

use crate::caps::PtxCaps;
use crate::module::{Module, Target, Version};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io, process};

/// The programs, as the packages of `requirements-ptx.txt` install them into `.venv`.
#[derive(Clone, Debug)]
pub struct Tools {
    /// For sm_75 and later.
    ptxas: PathBuf,
    /// The last that supports sm_70.
    ptxas_volta: PathBuf,
    nvdisasm: PathBuf,
}

/// The result of the assembler.
#[derive(Clone, Debug, Default)]
pub struct Assembled {
    /// The machine code, unless it was refused.
    pub cubin: Option<Vec<u8>>,
    /// Refused lines, from 1, each with the first reason. Every line is checked, up to a fatal one,
    /// but only valid text is also translated.
    pub refused: Vec<(usize, String)>,
    pub ended_at: Option<usize>,
    /// Its full output: register counts, warnings, errors.
    pub words: String,
}

impl Tools {
    /// The programs in the environment of the checkout at `root`.
    pub fn find(root: &Path) -> Result<Self, String> {
        let lib = root.join(".venv").join("lib");
        let folders = fs::read_dir(&lib).into_iter().flatten().flatten();
        let packages: Vec<PathBuf> =
            folders.map(|f| f.path().join("site-packages").join("nvidia")).collect();
        let find = |place: &str| {
            let found = packages.iter().map(|p| p.join(place)).find(|p| p.is_file());
            found.ok_or_else(|| {
                format!(
                    "{place} of NVIDIA's packages is not in {}: `make test` installs it, and so \
                     does `scripts/assemblers.sh`",
                    lib.display()
                )
            })
        };
        Ok(Self {
            ptxas: find("cu13/bin/ptxas")?,
            ptxas_volta: find("cuda_nvcc/bin/ptxas")?,
            nvdisasm: find("cu13/bin/nvdisasm")?,
        })
    }

    /// The newest version of PTX that the assembler for a target reads.
    pub fn newest_version(target: Target) -> Version {
        match target.sm {
            70 => Version { major: 8, minor: 8 },
            _ => Version { major: 9, minor: 0 },
        }
    }

    pub fn assemble(&self, module: &Module) -> io::Result<Assembled> {
        self.assemble_text(&module.text(), module.target, &["-v", "-lineinfo"])
    }

    pub fn assemble_text(
        &self,
        text: &str,
        target: Target,
        more: &[&str],
    ) -> io::Result<Assembled> {
        let input = Scratch::new("ptx");
        let output = Scratch::new("cubin");
        fs::write(&input.0, text)?;
        let program = if target.sm == 70 { &self.ptxas_volta } else { &self.ptxas };
        let mut command = Command::new(program);
        command.arg(format!("-arch={target}")).args(more);
        let said = command.arg(&input.0).arg("-o").arg(&output.0).output()?;
        let words = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        let cubin = match said.status.success() {
            true => Some(fs::read(&output.0)?),
            false => None,
        };
        let (refused, ended_at) = refused(&words);
        Ok(Assembled { cubin, refused, ended_at, words })
    }

    /// Disassembles machine code.
    pub fn disassemble(&self, cubin: &[u8]) -> io::Result<String> {
        self.nvdisasm(cubin, &["-c"])
    }

    /// The same with source lines.
    pub fn disassemble_with_lines(&self, cubin: &[u8]) -> io::Result<String> {
        self.nvdisasm(cubin, &["-c", "-g"])
    }

    fn nvdisasm(&self, cubin: &[u8], options: &[&str]) -> io::Result<String> {
        let input = Scratch::new("cubin");
        fs::write(&input.0, cubin)?;
        let said = Command::new(&self.nvdisasm).args(options).arg(&input.0).output()?;
        if !said.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&said.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    /// The targets of [`PtxCaps`], newest first: those that take longest start first.
    pub fn targets() -> Vec<Target> {
        PtxCaps::all().iter().rev().map(|c| c.target).collect()
    }
}

/// From lines like `ptxas k.ptx, line 9; error   : Illegal vector size`.
pub fn refused(words: &str) -> (Vec<(usize, String)>, Option<usize>) {
    let mut out: Vec<(usize, String)> = Vec::new();
    let mut ended_at = None;
    for line in words.lines().filter(|l| l.starts_with("ptxas ")) {
        let Some((_, rest)) = line.split_once(", line ") else { continue };
        let Some((number, rest)) = rest.split_once(';') else { continue };
        let Some((kind, reason)) = rest.split_once(':') else { continue };
        let Ok(number) = number.trim().parse() else { continue };
        let again = out.last().is_some_and(|(last, _)| *last == number);
        if matches!(kind.trim(), "error" | "fatal") && !again {
            out.push((number, reason.trim().to_string()));
        }
        if kind.trim() == "fatal" {
            ended_at = Some(number);
        }
    }
    (out, ended_at)
}

/// A temporary file, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(ending: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(env::temp_dir().join(format!("tessera-{}-{number}.{ending}", process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
