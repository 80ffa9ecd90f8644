//! Which names a piece of source binds, and which it takes from outside.

use crate::parsed::Parsed;
use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{BoolOp, Expr, Stmt, UnaryOp};
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_diag::{Diagnostics, SourceFile};

/// Every dotted path whose first name is neither a parameter nor assigned in the function, in
/// order of appearance: the caller resolves them in Python.
pub fn free_paths(file: &Arc<SourceFile>) -> Result<Vec<String>, Diagnostics> {
    let parsed = Parsed::new(file)?;
    let mut bound = assigned(&parsed.def.body);
    bound.extend(parsed.def.parameters.iter().map(|p| p.name().to_string()));
    let mut finder = PathFinder { bound: &bound, found: Vec::new() };
    finder.visit_body(&parsed.def.body);
    Ok(finder.found)
}

/// `a.b.c` for a chain of attributes on a name.
pub fn dotted_path(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Name(name) => Some(name.id.to_string()),
        Expr::Attribute(a) => Some(format!("{}.{}", dotted_path(&a.value)?, a.attr)),
        _ => None,
    }
}

/// The names that statements assign, at any depth.
pub fn assigned(body: &[Stmt]) -> BTreeSet<String> {
    let mut finder = Assigned { names: BTreeSet::new() };
    finder.visit_body(body);
    finder.names
}

struct PathFinder<'a> {
    bound: &'a BTreeSet<String>,
    found: Vec<String>,
}

impl<'a> Visitor<'a> for PathFinder<'_> {
    fn visit_expr(&mut self, expr: &'a Expr) {
        match dotted_path(expr) {
            Some(path) => {
                let root = path.split('.').next().unwrap_or_default();
                if !self.bound.contains(root) && !self.found.contains(&path) {
                    self.found.push(path);
                }
            }
            None => walk_expr(self, expr),
        }
    }
}

struct Assigned {
    names: BTreeSet<String>,
}

impl Assigned {
    fn target(&mut self, expr: &Expr) {
        match expr {
            Expr::Name(name) => {
                self.names.insert(name.id.to_string());
            }
            Expr::Tuple(t) => t.elts.iter().for_each(|e| self.target(e)),
            Expr::List(t) => t.elts.iter().for_each(|e| self.target(e)),
            Expr::Starred(s) => self.target(&s.value),
            _ => {}
        }
    }
}

impl<'a> Visitor<'a> for Assigned {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Assign(s) => s.targets.iter().for_each(|t| self.target(t)),
            Stmt::AugAssign(s) => self.target(&s.target),
            Stmt::AnnAssign(s) => self.target(&s.target),
            Stmt::For(s) => self.target(&s.target),
            _ => {}
        }
        walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Named(n) = expr {
            self.target(&n.target);
        }
        walk_expr(self, expr);
    }
}

/// The names that `:=` binds in an expression.
pub fn named(expr: &Expr) -> BTreeSet<String> {
    let mut finder = Assigned { names: BTreeSet::new() };
    finder.visit_expr(expr);
    finder.names
}

pub fn has_named(expr: &Expr) -> bool {
    !named(expr).is_empty()
}

/// The names that an expression has bound for certain where it came out true, or false.
pub fn bound_where(expr: &Expr, holds: bool) -> BTreeSet<String> {
    match expr {
        Expr::BoolOp(e) if (e.op == BoolOp::And) == holds => {
            e.values.iter().flat_map(|v| bound_where(v, holds)).collect()
        }
        Expr::UnaryOp(e) if e.op == UnaryOp::Not => bound_where(&e.operand, !holds),
        _ => {
            let mut finder = Bound { names: BTreeSet::new() };
            finder.visit_expr(expr);
            finder.names
        }
    }
}

/// What an expression binds wherever it is evaluated.
struct Bound {
    names: BTreeSet<String>,
}

impl<'a> Visitor<'a> for Bound {
    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::BoolOp(e) => e.values.iter().take(1).for_each(|v| self.visit_expr(v)),
            Expr::If(e) => self.visit_expr(&e.test),
            Expr::Compare(e) => {
                self.visit_expr(&e.left);
                e.comparators.iter().take(1).for_each(|v| self.visit_expr(v));
            }
            Expr::Named(e) => {
                if let Expr::Name(n) = &*e.target {
                    self.names.insert(n.id.to_string());
                }
                self.visit_expr(&e.value);
            }
            _ => walk_expr(self, expr),
        }
    }
}

/// The variables of the loops in a body, at any depth.
pub fn loop_targets(body: &[Stmt]) -> BTreeSet<String> {
    let mut finder = Targets { names: BTreeSet::new() };
    finder.visit_body(body);
    finder.names
}

struct Targets {
    names: BTreeSet<String>,
}

impl<'a> Visitor<'a> for Targets {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::For(s) = stmt
            && let Expr::Name(n) = &*s.target
        {
            self.names.insert(n.id.to_string());
        }
        walk_stmt(self, stmt);
    }
}

/// Whether a name is read anywhere but in the bodies of loops that bind it.
pub fn read_outside_loops(body: &[Stmt], name: &str) -> bool {
    let mut finder = Reads { name, found: false };
    finder.visit_body(body);
    finder.found
}

struct Reads<'n> {
    name: &'n str,
    found: bool,
}

impl<'a> Visitor<'a> for Reads<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::For(s) if matches!(&*s.target, Expr::Name(n) if n.id.as_str() == self.name) => {
                self.visit_expr(&s.iter);
                self.visit_body(&s.orelse);
            }
            // `i += 1` reads it.
            Stmt::AugAssign(s) if matches!(&*s.target, Expr::Name(n) if n.id.as_str() == self.name) =>
            {
                self.found = true;
            }
            _ => walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Name(n) = expr {
            self.found |= n.ctx.is_load() && n.id.as_str() == self.name;
        }
        walk_expr(self, expr);
    }
}

/// Whether a loop's body holds a `break` of this loop.
pub fn breaks_loop(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::Break(_) => true,
        Stmt::If(s) => {
            breaks_loop(&s.body) || s.elif_else_clauses.iter().any(|c| breaks_loop(&c.body))
        }
        // The `else` of an inner loop stands in this one.
        Stmt::For(s) => breaks_loop(&s.orelse),
        Stmt::While(s) => breaks_loop(&s.orelse),
        _ => false,
    })
}

/// Whether a loop's body can leave the loop: by `break` of this loop, or by `return`.
pub fn leaves_loop(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::Break(_) | Stmt::Return(_) => true,
        Stmt::If(s) => {
            leaves_loop(&s.body) || s.elif_else_clauses.iter().any(|c| leaves_loop(&c.body))
        }
        // A `break` in an inner loop is that loop's; a `return` is not.
        Stmt::For(s) => returns(&s.body) || leaves_loop(&s.orelse),
        Stmt::While(s) => returns(&s.body) || leaves_loop(&s.orelse),
        _ => false,
    })
}

/// Whether a body has a `return`, in inner loops too.
pub fn returns(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::Return(_) => true,
        Stmt::If(s) => returns(&s.body) || s.elif_else_clauses.iter().any(|c| returns(&c.body)),
        Stmt::For(s) => returns(&s.body) || returns(&s.orelse),
        Stmt::While(s) => returns(&s.body) || returns(&s.orelse),
        _ => false,
    })
}
