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

fn execute(module: &TileModule, call: &str, tools: &Tools) -> Result<String, String> {
    let (name, args) = split_call(call)?;
    let source = module
        .func(name)
        .ok_or_else(|| format!("expected a function of the file, got `{name}`"))?;
    let mut lowered = source.clone();
    if let Err(errors) = (tools.pipeline)(&mut lowered, &mut PassContext::default()) {
        return Ok(first_error(&errors));
    }
    let mut results =
        tools.backends.iter().map(|b| (b.name(), on_backend(source, &lowered, &args, b.as_ref())));
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

/// `{x = […], …}` with every array that may be written, or `error CODE message`.
fn on_backend(
    source: &TileFunc,
    lowered: &TileFunc,
    args: &[(&str, &str)],
    backend: &dyn Backend,
) -> Result<String, String> {
    let call = bind(source, lowered, args)?;
    let options = CompileOptions::new(Profile::Strict);
    let done =
        backend.compile(lowered, &options).and_then(|artifact| artifact.launch(&call.launch));
    if let Err(errors) = done {
        return Ok(first_error(&errors));
    }
    let mut shown = Vec::new();
    for (index, array) in &call.arrays {
        let param = source.params()[*index];
        if let tessera_ir::Type::View { privilege, .. } = source.ty(param)
            && privilege.writes()
        {
            shown.push(format!("{} = {}", source.name_of(param).unwrap_or_default(), array.show()));
        }
    }
    Ok(format!("{{{}}}", shown.join(", ")))
}
