//! Compilation of a kernel: from Tile IR through staging and selection to PTX.

use crate::caps::PtxCaps;
use crate::code::{Classes, Code, Shape};
use crate::module::{Kernel, Module, Target};
use crate::select::{Greatest, Selected};
use tessera_diag::{Code as ErrorCode, Diagnostic, Diagnostics};
use tessera_ir::{OpId, Type};
use tessera_lower::stage::{MOST_STAGES, Staging, stage};
use tessera_numerics::Profile;
use tessera_staged::ops::team::Team;
use tessera_staged::ops::tiles::is_once;
use tessera_staged::{StagedFunc, StagedOp};
use tessera_target::frame::Frame;
use tessera_tile::ops::asm::{AsmArch, AsmTarget};
use tessera_tile::{AsmHost, KernelKind, TileFunc, choose_asm, kind_of};

/// The most stages of a pipeline.
fn stages_of(func: &StagedFunc) -> u32 {
    let stages = |&id: &OpId| match func.ops[id].results.first().map(|&v| func.ty(v)) {
        Some(Type::Pipeline { stages, .. }) => *stages,
        _ => 1,
    };
    func.walk().iter().map(stages).max().unwrap_or(1)
}

/// Resident blocks of a multiprocessor, as far as is known before register allocation.
fn resident(kernel: &Kernel, caps: &PtxCaps) -> u32 {
    let by_shared =
        caps.gpu.shared_per_sm / (kernel.shared_bytes() + caps.gpu.shared_reserved).max(1);
    let by_threads = caps.gpu.threads_per_sm / kernel.threads;
    let by_registers = caps.gpu.registers_per_sm / (USUAL_REGISTERS * kernel.threads);
    // With register reallocation between roles, one block has all registers.
    let most = kernel.min_blocks.unwrap_or(caps.gpu.blocks_per_sm);
    by_shared.min(by_threads).min(by_registers).clamp(1, most.max(1))
}

/// Registers of a thread that holds 32 elements and computes on them.
const USUAL_REGISTERS: u32 = 64;

/// Reports which tile takes the most, and how large it may be.
fn too_much_shared(func: &TileFunc, got: u32, most: u32, by: Option<Greatest>) -> Diagnostic {
    let message = format!("expected at most {most} bytes of shared memory, got {got}");
    let error = Diagnostic::new(ErrorCode::E_TILE_LOWERING, message);
    let Some(by) = by.filter(|g| g.elements > 0) else {
        return error.at(func.loc.clone()).help("take smaller tiles, or fewer stages");
    };
    // As many elements as the rest leaves room for, in the same proportion.
    let room = most.saturating_sub(got - by.bytes.min(got));
    let fits = u64::from(room) * u64::from(by.elements) / u64::from(by.bytes.max(1));
    error
        .at(by.loc)
        .note(format!("{} takes {} bytes of it here", by.tile, by.bytes))
        .help(format!("a tile of at most {fits} elements fits here; or use fewer stages"))
}

/// Compiles for a target and for arrays of these classes.
pub fn compile(
    func: &TileFunc,
    caps: &PtxCaps,
    profile: Profile,
    classes: &Classes,
) -> Result<Code, Diagnostics> {
    // The bits of a text are the processor's.
    let runs = (profile != Profile::Strict).then_some(AsmTarget::Ptx);
    let target = caps.target.to_string();
    let name = if runs.is_some() { target } else { format!("{target} in the profile strict") };
    compile_with(
        func,
        caps,
        profile,
        classes,
        &AsmHost { target: runs, has: &|a| has(caps, a), name: &name },
    )
}

/// The same for an interpreter of PTX, which runs no assembly text.
pub fn compile_emulated(
    func: &TileFunc,
    caps: &PtxCaps,
    profile: Profile,
    classes: &Classes,
) -> Result<Code, Diagnostics> {
    let name = "the emulated GPU";
    compile_with(func, caps, profile, classes, &AsmHost { target: None, has: &|_| false, name })
}

fn has(caps: &PtxCaps, arch: &AsmArch) -> bool {
    match *arch {
        AsmArch::Sm { sm, exact: false } => caps.target.sm >= sm,
        AsmArch::Sm { sm, exact: true } => caps.target == (Target { sm, exact: true }),
        AsmArch::X86(_) => false,
    }
}

fn compile_with(
    func: &TileFunc,
    caps: &PtxCaps,
    profile: Profile,
    classes: &Classes,
    texts: &AsmHost<'_>,
) -> Result<Code, Diagnostics> {
    tessera_ir::verify(func)?;
    tessera_tile::has_elements(func)?;
    let chosen = choose_asm(func, texts)?;
    let func = chosen.as_ref().unwrap_or(func);
    let scans = match profile {
        Profile::Default => tessera_tile::Scans::Parallel,
        Profile::Deterministic | Profile::Strict => tessera_tile::Scans::Ordered,
    };
    let kept = |id| tessera_lower::stage::is_selected(func, &caps.gpu, profile, id);
    let expanded = tessera_tile::expand_parts_but(func, scans, &kept);
    let func = expanded.as_ref().unwrap_or(func);
    let frame = Frame::new(func)?;
    let mut reported = Diagnostics::new();
    let mut footprint = None;
    let (selected, staged, shape) = match kind_of(func) {
        Some(KernelKind::Lane) => {
            let always = tessera_tile::without_slow_paths(func);
            let func = always.as_ref().unwrap_or(func);
            let (selected, shape) = crate::lane::select(func, &frame, classes, caps, profile)?;
            (selected, None, shape)
        }
        _ => {
            let staging = Staging { caps: &caps.gpu, classes, profile };
            let select = |stages: u32, reported: &mut Diagnostics| {
                let staged = stage(func, &staging, stages, reported)?;
                let selected = crate::select::select(&staged, &frame, classes, caps, profile)?;
                Ok::<_, Diagnostics>((selected, staged))
            };
            let mut stages = MOST_STAGES;
            let (mut selected, mut staged) = select(stages, &mut reported)?;
            // What ops need beside pipelines is known after selection: if it does not fit, the
            // pipeline depth is reduced.
            while selected.kernel.dynamic_shared > caps.gpu.shared_per_block && stages > 1 {
                stages = stages_of(&staged).min(stages) - 1;
                reported = Diagnostics::new();
                (selected, staged) = select(stages, &mut reported)?;
            }
            let shape = shape_of(&staged, &selected.kernel, caps);
            let found = crate::footprint::of_staged(&staged, &caps.gpu);
            footprint = Some((crate::footprint::warn(func, &staging, &found), found));
            (selected, Some(staged), shape)
        }
    };
    let shared = selected.kernel.shared_bytes();
    if shared > caps.gpu.shared_per_block {
        return Err(
            too_much_shared(func, shared, caps.gpu.shared_per_block, selected.greatest).into()
        );
    }
    let mut code = finish(selected, &frame, caps, staged.as_ref(), shape, &reported)?;
    if let Some((warning, found)) = footprint {
        code.notes.push(("tile_registers", format!("{} of {}", found.tiles, found.registers)));
        code.warnings.extend(warning);
    }
    Ok(code)
}

/// Compiles a function of Staged IR as it is, for the arguments of `frame`.
pub fn compile_staged(
    func: &StagedFunc,
    frame: &Frame,
    caps: &PtxCaps,
    profile: Profile,
    classes: &Classes,
) -> Result<Code, Diagnostics> {
    tessera_ir::verify(func)?;
    let selected = crate::select::select(func, frame, classes, caps, profile)?;
    let shape = shape_of(func, &selected.kernel, caps);
    finish(selected, frame, caps, Some(func), shape, &Diagnostics::new())
}

/// The launch shape of a group kernel.
fn shape_of(staged: &StagedFunc, kernel: &Kernel, caps: &PtxCaps) -> Shape {
    let works_on = staged
        .walk()
        .iter()
        .any(|&id| matches!(staged.ops[id].code, StagedOp::Workers | StagedOp::Tiles));
    let in_phases = |id: &OpId| {
        let op = &staged.ops[*id];
        op.code == StagedOp::Workers && op.attr("axis").is_some()
    };
    // Clusters take long to start: the gain of phases would be lost.
    let phased = kernel.cluster == 1 && staged.walk().iter().any(in_phases);
    let team = Team::along_launch(staged);
    match works_on {
        true if is_once(staged) => Shape::Once { team },
        true => Shape::Persistent { per_multiprocessor: resident(kernel, caps), phased, team },
        false => Shape::Groups,
    }
}

/// Assembles and verifies the code of a kernel.
fn finish(
    selected: Selected,
    frame: &Frame,
    caps: &PtxCaps,
    staged: Option<&StagedFunc>,
    shape: Shape,
    reported: &Diagnostics,
) -> Result<Code, Diagnostics> {
    let kernel = selected.kernel;
    let mut notes = vec![
        ("threads", kernel.threads.to_string()),
        ("cluster", kernel.cluster.to_string()),
        ("shared_bytes", kernel.shared_bytes().to_string()),
        ("ptx_instructions", kernel.instructions().count().to_string()),
    ];
    let maps = selected.maps;
    if !maps.is_empty() {
        let mut copies: Vec<_> = maps.iter().map(|map| (map.param, map.text(frame))).collect();
        copies.sort_unstable();
        copies.dedup();
        let copies: Vec<_> = copies.into_iter().map(|(_, text)| text).collect();
        notes.push(("tma_copies", copies.join("; ")));
    }
    notes.extend(reported.iter().map(|note| ("note", format!("{}: {}", note.code, note.message))));
    let mut module = Module {
        version: crate::module::Version { major: 7, minor: 0 },
        target: caps.target,
        files: selected.files,
        kernels: vec![kernel],
    };
    module.version = module.minimum_version();
    // An invalid module is a compiler bug: it is reported as one, before any assembler sees it.
    crate::verify::verify(&module)?;
    crate::maps::check(&module.kernels[0], frame, &maps)?;
    let (prints, stamps) = (selected.prints, selected.stamps);
    let silent = prints.is_empty() && stamps.is_empty();
    let changes = !selected.sites.is_empty() || selected.ordered;
    let context = match (silent, changes || selected.counts) {
        (false, _) => crate::code::context::BYTES + crate::code::context::ROOM,
        (true, true) => crate::code::context::BYTES,
        (true, false) => 0,
    };
    let counts = selected.counts;
    let sites = selected.sites;
    let chosen = staged.map(crate::chosen::of).unwrap_or_default();
    let staged = staged.map(StagedFunc::to_string);
    Ok(Code {
        module,
        shape,
        sites,
        prints,
        stamps,
        context,
        counts,
        maps,
        staged,
        chosen,
        warnings: Diagnostics::new(),
        notes,
    })
}
