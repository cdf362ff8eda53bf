// What the Python side has told us: the sandbox that all tests share, and how a line of the checklist becomes a test.
import test from 'node:test'
import { Sandbox } from 'e2b'

const place = JSON.parse(process.env.AENV_CONTRACT_PLACE)

export const isMachine = place.name === 'machine'

export const options = {
    debug: place.options.debug ?? false,
    sandboxUrl: place.options.sandbox_url,
    apiUrl: place.options.api_url,
    apiKey: place.options.api_key,
}

export const sandbox = await Sandbox.connect(place.sandbox_id, options)

// `ids` are those of the lines that the test proves; Python finds them in the text of this call.
export function line(ids, name, body) {
    test(`${ids}: ${name}`, { timeout: 120_000 }, body)
}

export function machineLine(ids, name, body) {
    if (isMachine) line(ids, name, body)
}

let count = 0

// A path below the home that no other test uses.
export async function freshDirectory() {
    count += 1
    const path = `/home/user/contract-js/${process.pid}-${count}`
    await sandbox.files.makeDir(path)
    return path
}

// A promise with its ends outside, for callbacks.
export function deferred() {
    let resolve
    const promise = new Promise((settle) => (resolve = settle))
    return { promise, resolve }
}
