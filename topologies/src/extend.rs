//! `extends: NAME`: a file that says only what is different from another one.
//!
//! ```text
//! base:     a: { b: 1, c: [1, 2] }     own:  a: { c: [3] }, d: x     →     a: { b: 1, c: [3] }, d: x
//! ```
//! Mappings are merged key by key; anything else of the file replaces what the base has, lists as a whole. A key with
//! nothing after it leaves a mapping of the base as it is, and makes anything else absent. The name is never inherited.

use crate::{
    Problem,
    catalogue::shipped_topologies,
    problem::Place,
    suggest::nearest,
    tree::{Entry, Tree, Value},
};

/// The text of the file that `extends` names, if there is one.
pub type Bases<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A chain of bases is no longer than this: a longer one could not be read by people either.
const DEPTH_MAX: usize = 4;

/// Puts what the base of `tree` says below what it says itself. What is wrong with the base is reported where it is named.
pub(crate) fn extend(tree: Tree, bases: Bases<'_>, problems: &mut Vec<Problem>) -> Tree {
    extend_in(tree, bases, &mut Vec::new(), problems)
}

fn extend_in(mut tree: Tree, bases: Bases<'_>, chain: &mut Vec<String>, problems: &mut Vec<Problem>) -> Tree {
    let Value::Map(entries) = &mut tree.value else {
        return tree;
    };
    let Some(index) = entries.iter().position(|entry| entry.key == "extends") else {
        return tree;
    };
    let asked = entries.remove(index).tree;
    match base(&asked, bases, chain, problems) {
        Some(mut base) => {
            if let Value::Map(inherited) = &mut base.value {
                inherited.retain(|entry| entry.key != "name");
            }
            relocate(&mut base, asked.place);
            merge(base, tree)
        }
        None => tree,
    }
}

fn base(asked: &Tree, bases: Bases<'_>, chain: &mut Vec<String>, problems: &mut Vec<Problem>) -> Option<Tree> {
    let mut report = |rule, message: String, help: &str| {
        problems.push(Problem {
            place: Some(asked.place),
            ..Problem::new(rule, "extends", message, help)
        });
        None
    };
    let Value::Text(name) = &asked.value else {
        let message = format!("'extends' must be a name, not {}", asked.value.describe());
        return report("wrong-type", message, "write the name of a shipped file, or a path");
    };
    if chain.contains(name) || chain.len() == DEPTH_MAX {
        let message = format!("'{name}' extends itself, or stands on too many others");
        return report("endless-base", message, "let it stand on its own");
    }
    let Some(text) = bases(name) else {
        let message = format!("there is no topology '{name}' to extend");
        let shipped = shipped_topologies().iter().map(|(shipped, _)| *shipped);
        let help = match nearest(name, shipped) {
            Some(near) => format!("did you mean '{near}'?"),
            None => "name a shipped file, or a path from this file's folder".into(),
        };
        return report("unknown-base", message, &help);
    };
    let mut faults = Vec::new();
    let tree = Tree::read(&text, &mut faults);
    if let Some(fault) = faults.first() {
        let message = format!("'{name}' cannot be read: {}", fault.message);
        return report(
            "faulty-base",
            message,
            "correct it first: 'cluster check' shows the line",
        );
    }
    chain.push(name.clone());
    tree.map(|tree| extend_in(tree, bases, chain, problems))
}

/// Lets everything in `tree` stand where its file is named: its own lines mean nothing to a reader of this file.
fn relocate(tree: &mut Tree, place: Place) {
    tree.place = place;
    match &mut tree.value {
        Value::List(items) => items.iter_mut().for_each(|item| relocate(item, place)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| {
            entry.key_place = place;
            relocate(&mut entry.tree, place);
        }),
        _ => {}
    }
}

fn merge(base: Tree, own: Tree) -> Tree {
    let value = match (base.value, own.value) {
        (Value::Map(base), Value::Map(own)) => Value::Map(merge_entries(base, own)),
        (Value::Map(base), Value::Null) => Value::Map(base),
        (_, own) => own,
    };
    Tree {
        value,
        place: own.place,
    }
}

fn merge_entries(mut base: Vec<Entry>, own: Vec<Entry>) -> Vec<Entry> {
    for entry in own {
        match base.iter().position(|inherited| inherited.key == entry.key) {
            Some(index) => {
                let inherited = base.remove(index);
                let tree = merge(inherited.tree, entry.tree);
                base.push(Entry { tree, ..entry });
            }
            None => base.push(entry),
        }
    }
    base
}
