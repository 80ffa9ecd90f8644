//! `; test: pass=…` and `; test: pipeline`: what the passes make of each function stands below it,
//! and what they report stands at the line it is about.

use crate::Tools;
use crate::text::{Findings, chunks, without_expectations};
use tessera_diag::Diagnostics;
use tessera_ir::{Pass, PassContext, parse_func, verify};
use tessera_tile::{Tile, TileFunc};

type Transform<'a> = dyn Fn(&mut TileFunc, &mut PassContext) -> Result<(), Diagnostics> + 'a;

pub fn run(name: &str, text: &str, passes: &[String], tools: &Tools) -> Result<String, String> {
    let find = |p: &String| (tools.pass)(p).ok_or_else(|| format!("expected a pass, got `{p}`"));
    let passes = passes.iter().map(find).collect::<Result<Vec<Box<dyn Pass<Tile>>>, _>>()?;
    each(name, text, &|func, context| {
        for pass in &passes {
            pass.run(func, context)?;
            verify(func)?;
        }
        Ok(())
    })
}

pub fn run_pipeline(name: &str, text: &str, tools: &Tools) -> Result<String, String> {
    each(name, text, &|func, context| (tools.pipeline)(func, context))
}

fn each(name: &str, text: &str, transform: &Transform<'_>) -> Result<String, String> {
    let bare = without_expectations(text);
    let mut found = Findings::default();
    for chunk in chunks(&bare) {
        let mut func = parse_func::<Tile>(&chunk.text, name).map_err(|e| e.render())?;
        verify(&func).map_err(|e| e.render())?;
        let mut context = PassContext::default();
        let result = transform(&mut func, &mut context);
        found.diagnostics(&context.notes, chunk.first);
        match result {
            Ok(()) => found.output(chunk.last, func.to_string()),
            Err(errors) => found.diagnostics(&errors, chunk.first),
        }
    }
    Ok(found.write_into(&bare))
}
