//! Passes and the manager that runs them: times each, verifies after each, writes dumps.

use crate::{Func, Level, PrintOptions, render_in_place, verify};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    No,
    Yes,
}

/// What a pass may leave beside the function: warnings and notes for the user.
#[derive(Default)]
pub struct PassContext {
    pub notes: Diagnostics,
    /// Writes behind a promise about the same memory that could not be shown to keep to it: where the
    /// promise is, and where the write.
    pub beyond: Vec<(Loc, Loc)>,
}

pub trait Pass<L: Level>: Send + Sync {
    /// `level-verb-object`; also the name of its timer and its dump.
    fn name(&self) -> &'static str;
    fn run(&self, func: &mut Func<L>, context: &mut PassContext) -> Result<Changed, Diagnostics>;
}

#[derive(Clone, Debug, Default)]
pub struct PassOptions {
    pub verify_each: bool,
    /// Where to write the function before the first pass and after each that changed it.
    pub dump_dir: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct PassReport {
    pub name: &'static str,
    pub time: Duration,
    pub changed: Changed,
}

/// A pipeline: an ordered list of passes.
pub struct PassManager<L: Level> {
    passes: Vec<Box<dyn Pass<L>>>,
    pub options: PassOptions,
}

impl<L: Level> PassManager<L> {
    pub fn new(options: PassOptions) -> Self {
        Self { passes: Vec::new(), options }
    }

    pub fn with(mut self, pass: impl Pass<L> + 'static) -> Self {
        self.passes.push(Box::new(pass));
        self
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.passes.iter().map(|p| p.name()).collect()
    }

    /// Runs all passes in order. The first that fails ends the run; what it reported is the error.
    pub fn run(
        &self,
        func: &mut Func<L>,
        context: &mut PassContext,
    ) -> Result<Vec<PassReport>, Diagnostics> {
        self.dump(func, 0, "input", context);
        let mut reports = Vec::new();
        for (index, pass) in self.passes.iter().enumerate() {
            let start = Instant::now();
            let changed = pass.run(func, context)?;
            reports.push(PassReport { name: pass.name(), time: start.elapsed(), changed });
            if changed == Changed::Yes {
                self.dump(func, index + 1, pass.name(), context);
            }
            if self.options.verify_each
                && let Err(errors) = verify(func)
            {
                let first = errors.iter().next().map_or(String::new(), |d| d.message.clone());
                return Err(Diagnostic::new(
                    Code::E_UNKNOWN,
                    format!("the IR of `{}` is not valid after {}: {first}", func.name, pass.name()),
                )
                .note(render_in_place(func))
                .help("this is a fault of the compiler, not of the kernel: please report it with the kernel")
                .into());
            }
        }
        Ok(reports)
    }

    /// A dump that cannot be written is reported as a note; it must not fail a compilation.
    fn dump(&self, func: &Func<L>, index: usize, name: &str, context: &mut PassContext) {
        let Some(dir) = &self.options.dump_dir else { return };
        let path = dir.join(format!("{}.{index:02}-{name}.{}.tir", func.name, L::NAME));
        let text = func.to_text(PrintOptions { locs: true });
        if let Err(e) = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, text)) {
            context.notes.push(Diagnostic::new(
                Code::W_DUMP_IO,
                format!("the dump {} could not be written: {e}", path.display()),
            ));
        }
    }
}
