//! What the assembler says of each kernel (`-v`), and its warnings.

/// What one function needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub function: String,
    pub registers: u32,
    pub barriers: u32,
    /// Bytes of a thread's local memory.
    pub stack_bytes: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    /// Static only: what is requested at the launch comes on top.
    pub shared_bytes: u32,
    /// All banks together.
    pub const_bytes: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the assembler's order.
    pub functions: Vec<Resources>,
    /// Without the assembler's name in front; losses of speed that it reports are among them.
    pub warnings: Vec<String>,
}

impl Report {
    pub fn of(&self, function: &str) -> Option<&Resources> {
        self.functions.iter().find(|f| f.function == function)
    }

    /// Lines that are of no known kind are passed over: each version has more of them.
    pub fn parse(text: &str) -> Report {
        let mut report = Report::default();
        // The figures of one function stand under its name, in two lines.
        let mut current = 0;
        for line in text.lines() {
            if let Some(name) = between(line, "Compiling entry function '", "'") {
                current = report.index(name);
            } else if let Some((_, name)) = line.split_once("Function properties for ") {
                current = report.index(name.trim());
            } else if line.contains(" bytes stack frame") {
                report.figures(current, line);
            } else if let Some((_, figures)) = line.split_once(": Used ") {
                report.figures(current, figures);
            } else if let Some(warning) = warning(line) {
                report.warnings.push(warning);
            }
        }
        report
    }

    fn index(&mut self, name: &str) -> usize {
        self.functions.iter().position(|f| f.function == name).unwrap_or_else(|| {
            self.functions.push(Resources { function: name.into(), ..Resources::default() });
            self.functions.len() - 1
        })
    }

    /// From `12 registers, used 1 barriers, 4096 bytes smem, 380 bytes cmem[0]`.
    fn figures(&mut self, at: usize, text: &str) {
        let Some(function) = self.functions.get_mut(at) else { return };
        for part in text.split(',') {
            let part = part.trim().trim_start_matches("used ");
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            match what {
                "registers" => function.registers = number,
                "barriers" => function.barriers = number,
                "bytes stack frame" => function.stack_bytes = number,
                "bytes spill stores" => function.spill_store_bytes = number,
                "bytes spill loads" => function.spill_load_bytes = number,
                "bytes smem" => function.shared_bytes = number,
                bank if bank.starts_with("bytes cmem[") => function.const_bytes += number,
                _ => {}
            }
        }
    }
}

fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    line.split_once(before)?.1.split_once(after).map(|(inside, _)| inside)
}

fn warning(line: &str) -> Option<String> {
    let is_loss = line.contains("Potential Performance Loss");
    let (head, text) = line.split_once(" : ")?;
    (is_loss || head.contains("warning")).then(|| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'gemm'
ptxas info    : Function properties for gemm
    96 bytes stack frame, 84 bytes spill stores, 88 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 96 bytes cumulative stack size, 4096 bytes smem, 560 bytes cmem[0], 8 bytes cmem[4]
ptxas info    : Compile time = 51.594 ms
ptxas info    : Compiling entry function 'add' for 'sm_90a'
ptxas info    : Function properties for add
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
ptxas /tmp/x.ptx, line 7; warning : Unresolved extern variable 's' in whole program compilation
";

    #[test]
    fn figures_of_each_function_are_read() {
        let report = Report::parse(SAMPLE);
        let gemm = Resources {
            function: "gemm".into(),
            registers: 168,
            barriers: 9,
            stack_bytes: 96,
            spill_store_bytes: 84,
            spill_load_bytes: 88,
            shared_bytes: 4096,
            const_bytes: 568,
        };
        let add = Resources { function: "add".into(), registers: 12, ..Resources::default() };
        assert_eq!(report.functions, [gemm, add]);
        assert!(report.of("add").is_some() && report.of("mul").is_none());
    }

    #[test]
    fn warnings_and_losses_of_speed_are_kept() {
        let warnings = Report::parse(SAMPLE).warnings;
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("(C7510) Potential Performance Loss: wgmma"));
        assert!(warnings[1].starts_with("Unresolved extern variable 's'"));
    }

    #[test]
    fn anything_else_is_passed_over() {
        for text in ["", "ptxas info : Used", ": Used 3 registers", "Used x registers, y"] {
            assert_eq!(Report::parse(text), Report::default(), "{text}");
        }
    }
}
