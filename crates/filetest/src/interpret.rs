//! `; test: interpret`: each `; run: %f(…) == …` line is executed after the pipeline, by every
//! backend, and must give exactly what it says.

use crate::Tools;
use crate::args::{bind, split_call};
use tessera_diag::Diagnostics;
use tessera_ir::{PassContext, parse_module, verify};
use tessera_numerics::Profile;
use tessera_target::{Backend, CompileOptions};
use tessera_tile::{Tile, TileFunc, TileModule};

const MARK: &str = "; run: ";
const EQUALS: &str = " == ";

pub fn run(name: &str, text: &str, tools: &Tools) -> Result<String, String> {
    let module = parse_module::<Tile>(text, name).map_err(|e| e.render())?;
    for func in &module.funcs {
        verify(func).map_err(|e| e.render())?;
    }
    let mut out = String::new();
    let mut count = 0;
    for line in text.lines() {
        let shown = match line.strip_prefix(MARK) {
            None => line.to_string(),
            Some(rest) => {
                count += 1;
                let call = rest.split_once(EQUALS).map_or(rest, |(call, _)| call);
                let got =
                    execute(&module, call, tools).map_err(|why| format!("{why}\n  in: {line}"))?;
                format!("{MARK}{call}{EQUALS}{got}")
            }
        };
        out.push_str(&shown);
        out.push('\n');
    }
    if count == 0 {
        return Err("expected a line `; run: %f(…) == …`".into());
    }
    Ok(out)
}

/// A call of a `; run:` line: the function it names as it stands in the file, and after the pipeline.
pub struct Run {
    pub source: TileFunc,
    /// The errors of the pipeline, where it refuses the function.
    pub lowered: Result<TileFunc, Diagnostics>,
    call: String,
}

impl Run {
    fn new(module: &TileModule, call: &str, tools: &Tools) -> Result<Self, String> {
        let (name, _) = split_call(call)?;
        let source = module
            .func(name)
            .ok_or_else(|| format!("expected a function of the file, got `{name}`"))?;
        let mut lowered = source.clone();
        let done = (tools.pipeline)(&mut lowered, &mut PassContext::default());
        let lowered = done.map(|()| lowered);
        Ok(Self { source: source.clone(), lowered, call: call.to_string() })
    }

    /// What the call gives on a backend: `{x = […], …}` with every array that may be written.
    pub fn on(
        &self,
        backend: &dyn Backend,
        profile: Profile,
    ) -> Result<Result<String, Diagnostics>, String> {
        let lowered = match &self.lowered {
            Ok(lowered) => lowered,
            Err(errors) => return Ok(Err(errors.clone())),
        };
        let (_, args) = split_call(&self.call)?;
        let call = bind(&self.source, lowered, &args)?;
        let options = CompileOptions::new(profile);
        let done =
            backend.compile(lowered, &options).and_then(|artifact| artifact.launch(&call.launch));
        if let Err(errors) = done {
            return Ok(Err(errors));
        }
        let mut shown = Vec::new();
        for (index, array) in &call.arrays {
            let param = self.source.params()[*index];
            if let tessera_ir::Type::View { privilege, .. } = self.source.ty(param)
                && privilege.writes()
            {
                let name = self.source.name_of(param).unwrap_or_default();
                shown.push(format!("{name} = {}", array.show()));
            }
        }
        Ok(Ok(format!("{{{}}}", shown.join(", "))))
    }
}

/// The calls of the `; run:` lines of a text.
pub fn runs(name: &str, text: &str, tools: &Tools) -> Result<Vec<Run>, String> {
    let module = parse_module::<Tile>(text, name).map_err(|e| e.render())?;
    let calls = text.lines().filter_map(|line| line.strip_prefix(MARK));
    calls
        .map(|rest| rest.split_once(EQUALS).map_or(rest, |(call, _)| call))
        .map(|call| Run::new(&module, call, tools))
        .collect()
}

fn execute(module: &TileModule, call: &str, tools: &Tools) -> Result<String, String> {
    let run = Run::new(module, call, tools)?;
    if let Err(errors) = &run.lowered {
        return Ok(first_error(errors));
    }
    let shown = |b: &dyn Backend| {
        Ok::<_, String>(match run.on(b, Profile::Strict)? {
            Ok(values) => values,
            Err(errors) => first_error(&errors),
        })
    };
    let mut results = tools.backends.iter().map(|b| (b.name(), shown(b.as_ref())));
    let (first_name, first) = results.next().ok_or("expected a backend to run on")?;
    let first = first?;
    // What only the interpreter looks for, compiled code does not find.
    if ["error E_UNWAITED", "error E_UNINIT"].iter().any(|e| first.starts_with(e)) {
        return Ok(first);
    }
    for (name, other) in results {
        let other = other?;
        // A target may say that it does not take a kernel; what it takes must agree.
        if other.starts_with("error E_UNSUPPORTED") && !first.starts_with("error") {
            if std::env::var_os("TESSERA_SHOW_UNSUPPORTED").is_some() {
                eprintln!("{name}: {call}: {other}");
            }
            continue;
        }
        if other != first {
            return Err(format!(
                "expected one result, got\n  {first_name}: {first}\n  {name}: {other}"
            ));
        }
    }
    Ok(first)
}

fn first_error(errors: &Diagnostics) -> String {
    let first = errors.iter().next().map(|d| format!("{} {}", d.code, d.message));
    format!("error {}", first.unwrap_or_default())
}
